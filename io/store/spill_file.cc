#include "io/store/spill_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "io/engine/aligned_buffer.h"
#include "io/engine/file_system.h"
#include "io/os/errno.h"
#include "io/store/directory_owner.h"
#include "io/store/disk_reserve.h"

namespace spillway::io {
namespace {

constexpr int kNameAttempts = 16;
constexpr char kNamePrefix[] = ".spillway-";
constexpr size_t kNameLength = sizeof(kNamePrefix) - 1 + 16;
constexpr char kAccepted[] =
    "; expected: an existing directory on a local disk, writable for this user and owned by it or by root, "
    "and with "
    "the sticky bit if it is writable for everybody";

absl::Status Refuse(absl::StatusCode code, const std::string& directory, const std::string& why) {
  return absl::Status(code, "spill directory " + directory + ": " + why + kAccepted);
}

absl::Status CheckDirectory(int directory_fd, const std::string& directory, FileSystemCheck check) {
  struct stat info;
  if (fstat(directory_fd, &info) != 0) return os::StatusFromErrno(errno, "spill directory " + directory);
  if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return Refuse(absl::StatusCode::kPermissionDenied, directory,
                  "everybody may write to it and it has no sticky bit");
  }
  if (faccessat(directory_fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
    const absl::Status status = os::StatusFromErrno(errno, "it is not writable");
    return Refuse(status.code(), directory, std::string(status.message()));
  }
  if (const absl::Status owners = CheckOwners(directory, directory_fd); !owners.ok())
    return Refuse(owners.code(), directory, std::string(owners.message()));
  const FileSystemKind kind = KindOf(directory_fd);
  if (check == FileSystemCheck::kNormal && !kind.suitable) {
    return Refuse(absl::StatusCode::kInvalidArgument, directory,
                  "its file system is " + kind.name + ", which is memory or remote");
  }
  return absl::OkStatus();
}

int OpenUnnamed(int directory_fd, int flags) {
  return openat(directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL | flags, 0600);
}

// Removes names that were left by processes killed between two system calls. Names of living processes may be
// removed as well: those processes are about to remove them.
void RemoveLeftNames(int directory_fd) {
  const int list_fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = list_fd >= 0 ? fdopendir(list_fd) : nullptr;
  if (list == nullptr) {
    if (list_fd >= 0) close(list_fd);
    return;
  }
  while (const dirent* entry = readdir(list)) {
    struct stat info;
    if (std::strncmp(entry->d_name, kNamePrefix, sizeof(kNamePrefix) - 1) != 0 ||
        std::strlen(entry->d_name) != kNameLength ||
        fstatat(directory_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode) ||
        info.st_uid != geteuid()) {
      continue;
    }
    unlinkat(directory_fd, entry->d_name, 0);
  }
  closedir(list);
}

// Opens a file by a random name, which exists only between two system calls.
int OpenNamed(int directory_fd, int flags) {
  RemoveLeftNames(directory_fd);
  for (int i = 0; i < kNameAttempts; ++i) {
    char name[64];
    // This is not std::random_device, whose linked-in form needs glibc 2.36.
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) return -1;
    std::snprintf(name, sizeof(name), "%s%016llx", kNamePrefix, static_cast<unsigned long long>(random));
    const int fd =
        openat(directory_fd, name, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0) {
      unlinkat(directory_fd, name, 0);
      return fd;
    }
    // Some file systems create the file before they refuse O_DIRECT.
    if (errno == EINVAL) {
      unlinkat(directory_fd, name, 0);
      errno = EINVAL;
    }
    if (errno != EEXIST) return -1;
  }
  return -1;
}

int OpenWith(int directory_fd, int flags, FileNaming naming) {
  if (naming == FileNaming::kUnnamedIfPossible) {
    const int fd = OpenUnnamed(directory_fd, flags);
    if (fd >= 0) return fd;
  }
  return OpenNamed(directory_fd, flags);
}

bool IsBtrfs(int fd) {
  struct statfs info;
  return fstatfs(fd, &info) == 0 && static_cast<uint32_t>(info.f_type) == BTRFS_SUPER_MAGIC;
}

// btrfs counts allocated space as free until its next commit, up to half a minute later. Files would grow
// into the reserve in that time, each process's file by what all have allocated since. The commit is
// therefore requested and waited for. If it is refused, the figure stays late.
void CommitAllocation(int fd) {
  uint64_t transaction = 0;
  if (!IsBtrfs(fd) || ioctl(fd, BTRFS_IOC_START_SYNC, &transaction) != 0) return;
  const int ignored = ioctl(fd, BTRFS_IOC_WAIT_SYNC, &transaction);
  (void)ignored;
}

// btrfs writes an overwritten block to a new place, so the allocated space may not suffice for the next
// write. The flag turns that off for an empty file. Other file systems do not know the flag.
void WriteInPlace(int fd) {
  int flags = 0;
  if (!IsBtrfs(fd) || ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) return;
  flags |= FS_NOCOW_FL;
  const int ignored = ioctl(fd, FS_IOC_SETFLAGS, &flags);
  (void)ignored;
}

uint64_t FileSizeLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

}  // namespace

SpillFile::SpillFile(std::string directory, int fd, dev_t device, bool direct)
    : directory_(std::move(directory)), device_(device), direct_(direct), fd_(fd) {}

SpillFile::~SpillFile() { Close(); }

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Create(const std::string& directory,
                                                             FileSystemCheck check, DirectIo direct_io,
                                                             FileNaming naming) {
  const int directory_fd = open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd < 0) {
    const absl::Status status = os::StatusFromErrno(errno, "it cannot be opened");
    return Refuse(status.code(), directory, std::string(status.message()));
  }
  absl::Status checked = CheckDirectory(directory_fd, directory, check);
  int fd = -1;
  bool direct = direct_io == DirectIo::kIfPossible;
  int error = 0;
  if (checked.ok()) {
    if (direct) fd = OpenWith(directory_fd, O_DIRECT, naming);
    if (fd < 0) {
      direct = false;
      fd = OpenWith(directory_fd, 0, naming);
    }
    error = errno;
  }
  close(directory_fd);
  SPILLWAY_RETURN_IF_ERROR(checked);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) {
    if (fd >= 0) close(fd);
    const absl::Status status = os::StatusFromErrno(error, "no file can be made in it");
    return Refuse(status.code(), directory, std::string(status.message()));
  }
  WriteInPlace(fd);
  return std::unique_ptr<SpillFile>(new SpillFile(directory, fd, info.st_dev, direct));
}

absl::Status SpillFile::Grow(uint64_t bytes, const os::Atomic<bool>* stop) {
  int error = grows_by_writing_.load() ? EOPNOTSUPP : 0;
  // Blocks are allocated now and not at the write, so that a full disk shows here, where no transfer is under
  // way.
  if (error == 0 && fallocate(fd(), 0, static_cast<off_t>(size_), static_cast<off_t>(bytes - size_)) != 0) {
    error = errno;
  }
  if (error == EOPNOTSUPP || error == ENOSYS) {
    grows_by_writing_.store(true);
    error = AllocateByWriting(bytes, stop);
  }
  if (error != 0) {
    // A failed fallocate or write may leave a part of the growth.
    const int ignored = ftruncate(fd(), static_cast<off_t>(size_));
    (void)ignored;
    return os::StatusFromErrno(error, "spill file in " + directory_ + ": cannot grow from " +
                                          std::to_string(size_) + " to " + std::to_string(bytes) + " bytes");
  }
  CommitAllocation(fd());
  size_ = bytes;
  return absl::OkStatus();
}

// Writes zeros from size_ to `bytes`. Returns 0 or the errno value. Without O_DIRECT the zeros are flushed,
// since the page cache alone allocates no blocks.
int SpillFile::AllocateByWriting(uint64_t bytes, const os::Atomic<bool>* stop) const {
  AlignedBuffer zeros(1u << 20);
  std::memset(zeros.data(), 0, zeros.size());
  uint64_t at = size_;
  while (at < bytes) {
    if (stop != nullptr && stop->load()) return ECANCELED;
    const uint64_t length = std::min<uint64_t>(zeros.size(), bytes - at);
    const ssize_t written = pwrite(fd(), zeros.data(), length, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    const uint64_t pages = static_cast<uint64_t>(written) / kPageBytes * kPageBytes;
    if (pages == 0) return ENOSPC;
    at += pages;
  }
  return direct_ || fdatasync(fd()) == 0 ? 0 : errno;
}

absl::Status SpillFile::Truncate(uint64_t bytes) {
  if (ftruncate(fd(), static_cast<off_t>(bytes)) != 0) {
    return os::StatusFromErrno(errno, "spill file in " + directory_ + ": cannot cut it");
  }
  size_ = bytes;
  return absl::OkStatus();
}

SpillFile::Growable SpillFile::SpaceToGrow(uint64_t size, uint64_t cap_bytes, uint64_t reserve_bytes) const {
  Growable growable;
  const auto limit = [&](Limit which, uint64_t most_bytes) {
    if (growable.limit != Limit::kNone && most_bytes >= growable.limit_bytes) return;
    growable.limit = which;
    growable.limit_bytes = most_bytes;
    growable.by_limits = most_bytes > size ? most_bytes - size : 0;
  };
  limit(Limit::kFileSize, std::min(FileSizeLimit(), uint64_t{INT64_MAX}));
  if (cap_bytes != 0) limit(Limit::kCap, cap_bytes);
  struct statvfs info;
  if (fstatvfs(fd(), &info) != 0) return growable;
  const uint64_t total = uint64_t{info.f_blocks} * info.f_frsize;
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  const uint64_t reserve = ReserveOf(total, reserve_bytes);
  growable.by_disk = free > reserve ? free - reserve : 0;
  // This limit ignores other files: it is a limit of this file alone.
  limit(Limit::kFileSystem, size + (total > reserve ? total - reserve : 0));
  return growable;
}

void SpillFile::Close() {
  const int fd = fd_.exchange(-1);
  if (fd >= 0) close(fd);
}

}  // namespace spillway::io
