#include "io/store/node_share.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>

#include "io/store/range_lock.h"

namespace spillway::io {
namespace {

// The layout of the locks: 2^17 accounts of 2^20 places. A place's lock is one byte longer than its number of
// units, so that 0 is visible, too. It never reaches the next place, or the kernel would join the two.
constexpr int kPlaceBits = 24;
constexpr int kAccountBits = kPlaceBits + 20;
constexpr uint64_t kMaxUnits = (uint64_t{1} << kPlaceBits) - 2;
// Far more than a node has. It bounds the time that somebody else's locks can cost us.
constexpr size_t kMaxLocks = 8192;

// FNV-1a, and a mixer (SplitMix64). Places and accounts only need to be spread.
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}
uint64_t Mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

int64_t AccountStart(const std::string& account) {
  const uint64_t number = Mixed(HashOf(account)) >> (64 - 17);
  return kShareLocksStart + static_cast<int64_t>(number << kAccountBits);
}

struct Range {
  int64_t begin;
  int64_t end;
};

// The locks of others in `all`. The kernel returns one lock at a time; the ranges before and behind it are
// asked about next. A read lock conflicts only with a write lock, which is asked about and never taken.
std::vector<Range> LocksOfPeers(int fd, Range all) {
  std::vector<Range> found;
  std::vector<Range> left = {all};
  while (!left.empty() && found.size() < kMaxLocks) {
    const Range range = left.back();
    left.pop_back();
    struct flock lock = LockOf(F_WRLCK, range.begin, range.end - range.begin);
    if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) continue;
    const int64_t end = lock.l_len == 0 ? all.end : std::min(all.end, lock.l_start + lock.l_len);
    found.push_back({std::max<int64_t>(all.begin, lock.l_start), end});
    if (found.back().begin > range.begin) left.push_back({range.begin, found.back().begin});
    if (end < range.end) left.push_back({end, range.end});
  }
  return found;
}

}  // namespace

uint64_t MostToTake(uint64_t total_bytes, int ranks, uint64_t taken_by_peers) {
  const uint64_t part = ranks > 0 ? total_bytes / static_cast<uint64_t>(ranks) : total_bytes;
  return std::min(part, total_bytes - std::min(total_bytes, taken_by_peers));
}

// ---- The entry.

NodeShare::NodeShare(const Options& options)
    : options_(options), account_start_(AccountStart(options.account)) {
  for (const std::string& directory : options_.directories) {
    if (!directory.empty() && Enter(directory)) break;
  }
  Scan();
}

// A place belongs to another if any byte of it is locked. Two processes that take one at the same time both
// see that, and both look for another.
bool NodeShare::Enter(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  uint64_t seed = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  seed ^= Mixed(static_cast<uint64_t>(getpid())) ^ reinterpret_cast<uint64_t>(this);
  for (int tries = 0; tries < 64; ++tries) {
    place_ = static_cast<int64_t>(Mixed(seed + static_cast<uint64_t>(tries)) >> (64 - 20));
    const Range place = {PlaceStart(), PlaceStart() + (int64_t{1} << kPlaceBits)};
    if (!LocksOfPeers(fd, place).empty()) continue;
    struct flock mine = LockOf(F_RDLCK, place.begin, 1);
    if (fcntl(fd, F_OFD_SETLK, &mine) != 0) break;  // this file system takes no locks
    if (LocksOfPeers(fd, place).empty()) {
      fd_.store(fd);
      return true;
    }
    struct flock back = LockOf(F_UNLCK, place.begin, 1);
    if (fcntl(fd, F_OFD_SETLK, &back) != 0) break;
  }
  close(fd);
  return false;
}

void NodeShare::Close() {
  const int fd = fd_.exchange(-1);
  if (fd >= 0) close(fd);
}

int64_t NodeShare::PlaceStart() const { return account_start_ + (place_ << kPlaceBits); }

uint64_t NodeShare::Units(uint64_t bytes) const {
  return std::min(kMaxUnits, bytes / options_.unit_bytes + (bytes % options_.unit_bytes != 0 ? 1 : 0));
}

// Uses one call of the kernel in either direction, so that others see the old length or the new one.
bool NodeShare::SetLength(uint64_t bytes) {
  const int fd = fd_.load();
  if (fd < 0) return true;
  const auto before = static_cast<int64_t>(Units(taken_)) + 1;
  const auto after = static_cast<int64_t>(Units(bytes)) + 1;
  if (after == before) return true;
  const int64_t start = PlaceStart();
  struct flock lock =
      after > before ? LockOf(F_RDLCK, start, after) : LockOf(F_UNLCK, start + after, before - after);
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// ---- The other processes.

void NodeShare::Scan() {
  peers_.clear();
  const int fd = fd_.load();
  if (fd < 0) return;
  std::map<int64_t, uint64_t> places;
  for (const Range& lock :
       LocksOfPeers(fd, {account_start_, account_start_ + (int64_t{1} << kAccountBits)})) {
    const auto units = static_cast<uint64_t>(std::max<int64_t>(0, lock.end - lock.begin - 1));
    uint64_t& taken = places[(lock.begin - account_start_) >> kPlaceBits];
    taken = std::max(taken, std::min(units, kMaxUnits) * options_.unit_bytes);
  }
  for (const auto& [place, taken] : places) peers_.push_back(taken);
}

uint64_t NodeShare::MostToTake(uint64_t total_bytes) const {
  return io::MostToTake(total_bytes, options_.ranks, taken_by_peers());
}

uint64_t NodeShare::taken_by_peers() const {
  return std::accumulate(peers_.begin(), peers_.end(), uint64_t{0});
}

bool NodeShare::Register(uint64_t bytes, uint64_t total_bytes) {
  const uint64_t before = taken_;
  const auto fits = [&] {
    Scan();
    return bytes <= MostToTake(total_bytes);
  };
  if (bytes > before && !fits()) return false;
  if (!SetLength(bytes)) return false;
  taken_ = bytes;
  // Two processes may have registered at the same time. Each sees the other, and takes its registration back.
  if (bytes <= before || fits()) return true;
  if (SetLength(before)) taken_ = before;
  return false;
}

// ---- Places for the locks.

std::vector<std::string> HostMemoryShareDirectories() {
  std::vector<std::string> directories = {"/sys/fs/cgroup/memory"};  // version 1
  struct statfs system = {};
  if (statfs("/sys/fs/cgroup", &system) == 0 && system.f_type == CGROUP2_SUPER_MAGIC)
    directories.push_back("/sys/fs/cgroup");
  directories.push_back("/proc");
  return directories;
}

std::string MountRoot(const std::string& directory) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(directory.c_str(), nullptr), &free);
  struct stat here;
  if (real == nullptr || stat(real.get(), &here) != 0) return "";
  std::filesystem::path path = real.get();
  while (path.has_relative_path()) {
    struct stat above;
    if (stat(path.parent_path().c_str(), &above) != 0 || above.st_dev != here.st_dev) break;
    path = path.parent_path();
  }
  return path.string();
}

}  // namespace spillway::io
