// NodeShare: lets the processes of a node divide a common resource, host memory or the space of a disk,
// without a central allocator. Ranks whose number is known have equal parts. Other processes take what is
// free, first come, first served, and keep it until they give it back or end. Each process locks bytes of a
// directory that all of them see; the length of its lock is the amount that it has. Nothing is written, any
// user may do it, and the kernel drops the locks of a process that ends, however it ends. The account, a
// text, identifies the processes that share.
//
// HostPool has one for host memory, and each keeper of SpillStore has one for its directory. A process counts
// as alone when no lock can be taken. A process in a container that sees another directory is not seen: see
// docs/decisions/0019-shared-by-locks.md. One thread at a time, except for Close. Asks the kernel, not a
// disk.

#ifndef SPILLWAY_IO_STORE_NODE_SHARE_H_
#define SPILLWAY_IO_STORE_NODE_SHARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "io/os/atomic.h"

namespace spillway::io {

// The most that a process may have of `total_bytes` beside others that have `taken_by_peers`. `ranks`
// processes divide it equally; 0 means that their number is not known. Arithmetic only.
uint64_t MostToTake(uint64_t total_bytes, int ranks, uint64_t taken_by_peers);

// Not thread-safe, except for Close.
class NodeShare {
 public:
  struct Options {
    std::vector<std::string> directories;  // the first that can be locked is used
    std::string account;                   // only processes of the same account share
    int ranks = 0;                         // processes that divide it equally; 0: unknown
    uint64_t unit_bytes = 2 << 20;         // bytes are rounded up to this
  };
  explicit NodeShare(const Options& options);
  ~NodeShare() { Close(); }
  NodeShare(const NodeShare&) = delete;
  NodeShare& operator=(const NodeShare&) = delete;

  // Reads the locks of the other processes. The methods below use the result of the last Scan.
  void Scan();
  // The most that this process may have of `total_bytes` now.
  uint64_t MostToTake(uint64_t total_bytes) const;
  uint64_t taken_by_peers() const;
  size_t peers() const { return peers_.size(); }
  // False when no directory could be locked: the process counts as alone.
  bool entered() const { return fd_.load() >= 0; }

  // Registers that this process has `bytes` from now on. More than before is registered only if all processes
  // together then have no more than `total_bytes`; otherwise returns false and changes nothing. Call it
  // before more is taken, and after some was given back. Scans the other processes.
  bool Register(uint64_t bytes, uint64_t total_bytes);
  uint64_t taken() const { return taken_; }

  // Ends the entry. Also for a forked child: the parent stays entered.
  void Close();

 private:
  bool Enter(const std::string& directory);
  bool SetLength(uint64_t bytes);
  int64_t PlaceStart() const;
  uint64_t Units(uint64_t bytes) const;

  const Options options_;
  const int64_t account_start_;  // the account's first byte
  os::Atomic<int> fd_{-1};       // descriptor of the directory; Close exchanges it
  int64_t place_ = 0;            // index among the account's places
  uint64_t taken_ = 0;           // amount that is registered
  std::vector<uint64_t> peers_;  // amount of each
};

// Directories that processes have in common if their memory is charged to the same account of the kernel: the
// root of the control groups, or else /proc.
std::vector<std::string> HostMemoryShareDirectories();
// The highest directory above `directory` on the same file system; empty when there is none.
std::string MountRoot(const std::string& directory);

// Locks of NodeShare lie from here on; DiskOrder's lie below.
inline constexpr int64_t kShareLocksStart = int64_t{1} << 61;

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_NODE_SHARE_H_
