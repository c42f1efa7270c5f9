// SpillFile: one unlinked file in one directory. It has no name from birth, mode 0600, and is gone, space included,
// when the process ends for whatever reason. It knows how to grow within cap, reserve and limits; not what is in it.

#ifndef SPILLWAY_IO_SPILL_FILE_H_
#define SPILLWAY_IO_SPILL_FILE_H_

#include <sys/types.h>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/os/atomic.h"

namespace spillway::io {

enum class FileSystemCheck : uint8_t {
  kNormal,  // tmpfs, ramfs and NFS are refused
  kAny,
};

enum class FileNaming : uint8_t {
  kUnnamedIfPossible,  // O_TMPFILE, else as below
  kNamedThenUnlinked,  // for file systems without O_TMPFILE, and its test
};

enum class DirectIo : uint8_t { kIfPossible, kNever };

class SpillFile {
 public:
  // Checks that `directory` exists, is one, is writable, has the sticky bit if it is writable by all, and lies on a
  // file system meant for this; then makes the file. Errors name the path and what is accepted.
  static absl::StatusOr<std::unique_ptr<SpillFile>> Create(const std::string& directory,
                                                           FileSystemCheck check, DirectIo direct_io,
                                                           FileNaming naming);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  const std::string& directory() const { return directory_; }
  dev_t device() const { return device_; }  // of the file system
  int fd() const { return fd_.load(); }
  bool direct() const {
    return direct_;
  }  // opened with O_DIRECT; a probe may still find that it does not work

  // Makes the file `bytes` long with its blocks allocated: by fallocate, or by writing where that is not supported, until
  // `stop` is set. On failure (ResourceExhausted: disk, quota or file size limit) the file is as long as before. One
  // caller at a time.
  absl::Status Grow(uint64_t bytes, const os::Atomic<bool>* stop = nullptr);
  // True once it was found that growing means writing: small steps are better.
  bool grows_by_writing() const { return grows_by_writing_.load(); }

  // Cuts the file to `bytes`.
  absl::Status Truncate(uint64_t bytes);

  // By how many bytes the file may still grow.
  struct Growable {
    uint64_t by_limits = 0;  // by `cap_bytes` (0: none), RLIMIT_FSIZE and the file system's size
    uint64_t by_disk = 0;    // what is free beyond the reserve; 0 when the file system does not answer
    uint64_t bytes() const { return by_limits < by_disk ? by_limits : by_disk; }
  };
  // `size`: of the file now. `reserve_bytes`: left free in the file system; 0: the default, max(5 %, 10 GiB). Any thread;
  // asks the file system.
  Growable RoomToGrow(uint64_t size, uint64_t cap_bytes, uint64_t reserve_bytes) const;

  // Closes the descriptor, which frees the space. Also in a forked child; takes no lock.
  void Close();

 private:
  SpillFile(std::string directory, int fd, dev_t device, bool direct);
  int AllocateByWriting(uint64_t bytes, const os::Atomic<bool>* stop) const;

  const std::string directory_;
  const dev_t device_;
  const bool direct_;
  uint64_t size_ = 0;                         // bytes; Grow and Truncate only
  os::Atomic<bool> grows_by_writing_{false};  // set by Grow; a hint to others
  os::Atomic<int> fd_;                        // -1 once closed; Close exchanges it, the users of fd() load it
};

// Name of a file system, "ext4", or "0x..." when unknown, from statfs of an open descriptor.
std::string FileSystemName(int fd);

// True for tmpfs and ramfs (memory) and NFS (an unlinked file outlives its process there).
bool IsUnsuitableFileSystem(int fd);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_SPILL_FILE_H_
