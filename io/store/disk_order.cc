#include "io/store/disk_order.h"

#include <fcntl.h>
#include <unistd.h>

#include <ctime>

#include "io/store/node_share.h"
#include "io/store/range_lock.h"

namespace spillway::io {
namespace {

// Opens the mount's root directory, on which all its processes lock; -1 when it cannot be opened.
int OpenRoot(const std::string& directory) {
  const std::string root = MountRoot(directory);
  return root.empty() ? -1 : open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// A read lock conflicts only with a write lock, which is asked about and never taken.
bool IsLocked(int fd, int64_t from, int64_t bytes) {
  struct flock all = LockOf(F_WRLCK, from, bytes);
  return fd >= 0 && fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
}

}  // namespace

DiskOrder::DiskOrder(const std::string& directory) {
  const int fd = OpenRoot(directory);
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

bool DiskOrder::IsUsed(const std::string& directory) {
  const int fd = OpenRoot(directory);
  const bool used = IsLocked(fd, 0, 0);
  if (fd >= 0) close(fd);
  return used;
}

bool DiskOrder::OtherProcesses(int64_t from, int64_t bytes) const {
  return IsLocked(fd_.load(), from, bytes);
}

void DiskOrder::Close() {
  const int fd = fd_.exchange(-1);
  if (fd >= 0) close(fd);
}

}  // namespace spillway::io
