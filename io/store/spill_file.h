// SpillFile: one unlinked file in one directory, with mode 0600. The file and its space are gone when the
// process ends, for whatever reason. It can grow within a cap, a reserve and the system's limits. It does not
// know its contents. SpillStore has one per directory: the directory's keeper grows it, and the engine reads
// and writes it. One thread at a time calls Grow and Truncate; any thread calls the rest. Creating and
// growing the file fail with an error that names the path.

#ifndef SPILLWAY_IO_STORE_SPILL_FILE_H_
#define SPILLWAY_IO_STORE_SPILL_FILE_H_

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
  kUnnamedIfPossible,  // O_TMPFILE, or else kNamedThenUnlinked
  kNamedThenUnlinked,  // for file systems without O_TMPFILE, and its test
};

enum class DirectIo : uint8_t { kIfPossible, kNever };

class SpillFile {
 public:
  // Checks that `directory` exists, is a directory, is writable, has the sticky bit if it is writable by
  // everybody, has a trusted owner (directory_owner.h), and lies on a suitable file system. Then creates the
  // file. Errors name the path and what is accepted.
  static absl::StatusOr<std::unique_ptr<SpillFile>> Create(const std::string& directory,
                                                           FileSystemCheck check, DirectIo direct_io,
                                                           FileNaming naming);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  const std::string& directory() const { return directory_; }
  dev_t device() const { return device_; }  // of the file system
  int fd() const { return fd_.load(); }
  // Whether it was opened with O_DIRECT. A probe may still find that direct transfers do not work.
  bool direct() const { return direct_; }

  // Makes the file `bytes` long, with its blocks allocated: by fallocate, or by writing if that is not
  // supported. Writing ends when `stop` is set. On btrfs it waits for the file system's commit. On failure
  // (ResourceExhausted: disk, quota or file size limit) the file keeps its length. One caller at a time.
  absl::Status Grow(uint64_t bytes, const os::Atomic<bool>* stop = nullptr);
  // True after growing was found to mean writing. It is better then to grow by little at a time.
  bool grows_by_writing() const { return grows_by_writing_.load(); }

  // Cuts the file to `bytes`. One caller at a time, like Grow.
  absl::Status Truncate(uint64_t bytes);

  // Number of bytes by which the file may still grow.
  enum class Limit : uint8_t { kNone, kCap, kFileSize, kFileSystem };
  struct Growable {
    uint64_t by_limits = 0;      // allowed by `cap_bytes`, RLIMIT_FSIZE and the file system's size
    Limit limit = Limit::kNone;  // the lowest of these, and the file size that it allows
    uint64_t limit_bytes = 0;
    uint64_t by_disk = 0;  // free space beyond the reserve; 0 when the file system gives an error
    uint64_t bytes() const { return by_limits < by_disk ? by_limits : by_disk; }
  };
  // `size` is the file's present size. `cap_bytes` is its upper limit; 0 for none. `reserve_bytes` is left
  // free in the file system; 0 for the default (disk_reserve.h). Asks the file system, which may take long.
  // Any thread.
  Growable SpaceToGrow(uint64_t size, uint64_t cap_bytes, uint64_t reserve_bytes) const;

  // Closes the descriptor, which frees the space. Also for a forked child; takes no lock.
  void Close();

 private:
  SpillFile(std::string directory, int fd, dev_t device, bool direct);
  int AllocateByWriting(uint64_t bytes, const os::Atomic<bool>* stop) const;

  const std::string directory_;
  const dev_t device_;
  const bool direct_;
  uint64_t size_ = 0;                         // bytes; used by Grow and Truncate alone
  os::Atomic<bool> grows_by_writing_{false};  // set by Grow; a hint to other threads
  os::Atomic<int> fd_;                        // -1 once closed; Close exchanges it, the users of fd() load it
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SPILL_FILE_H_
