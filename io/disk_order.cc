#include "io/disk_order.h"

#include <fcntl.h>
#include <unistd.h>

#include <ctime>

#include "io/node_share.h"
#include "io/range_lock.h"

namespace spillway::io {
DiskOrder::DiskOrder(const std::string& directory) {
  const std::string root = MountRoot(directory);
  const int fd = root.empty() ? -1 : open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  place_ = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  struct flock mine = LockOf(F_RDLCK, place_, 1);
  if (fcntl(fd, F_OFD_SETLK, &mine) != 0) {
    close(fd);
    return;
  }
  fd_.store(fd);
}

bool DiskOrder::FirstOfSeveral() const {
  return OtherProcesses(place_ + 1, kShareLocksStart - place_ - 1) && !OtherProcesses(0, place_);
}

bool DiskOrder::Alone() const { return !OtherProcesses(place_ + 1, 0) && !OtherProcesses(0, place_); }

// A read lock conflicts only with a write lock, which is asked about and never taken.
bool DiskOrder::OtherProcesses(int64_t from, int64_t bytes) const {
  struct flock all = LockOf(F_WRLCK, from, bytes);
  const int fd = fd_.load();
  return fd >= 0 && fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
}

void DiskOrder::Close() {
  const int fd = fd_.exchange(-1);
  if (fd >= 0) close(fd);
}

}  // namespace spillway::io
