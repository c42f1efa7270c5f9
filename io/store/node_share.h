// NodeShare: how processes of a node divide what they have in common, host memory or the space of a disk,
// without anyone who allots it. Ranks whose number is known have equal parts. Others take what is free, first
// come, first served, and keep it until they give it back or end. Each process locks bytes of a directory that
// all of them see: how long its lock is says how much it holds. Nothing is written, any user may do it, and the
// kernel drops the locks of a process that ends, however it ends. The account, a text, says who shares with
// whom.
//
// HostPool has one for host memory, each keeper of SpillStore one for its directory. Where no lock can be taken a
// process counts as alone. A process in a container that sees another directory is not seen: see
// docs/decisions/0019-shared-by-locks.md. One thread at a time, but for Close. Asks the kernel, not a disk.

#ifndef SPILLWAY_IO_STORE_NODE_SHARE_H_
#define SPILLWAY_IO_STORE_NODE_SHARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "io/os/atomic.h"

namespace spillway::io {

// The most that a process may hold of `total_bytes` beside others that hold `taken_by_peers`. `ranks`: as many
// processes divide it equally; 0: their number is not known. Arithmetic only.
uint64_t MostToTake(uint64_t total_bytes, int ranks, uint64_t taken_by_peers);

// Not thread-safe, but for Close.
class NodeShare {
 public:
  struct Options {
    std::vector<std::string> directories;  // the first that can be locked serves
    std::string account;                   // only processes of the same account share
    int ranks = 0;                         // processes that divide it equally; 0: their number is not known
    uint64_t unit_bytes = 2 << 20;         // bytes are rounded up to it
  };
  explicit NodeShare(const Options& options);
  ~NodeShare() { Close(); }
  NodeShare(const NodeShare&) = delete;
  NodeShare& operator=(const NodeShare&) = delete;

  // Looks at the others. What follows goes by the last look.
  void Look();
  // The most that this process may hold of `total_bytes` now.
  uint64_t MostToTake(uint64_t total_bytes) const;
  uint64_t taken_by_peers() const;
  size_t peers() const { return peers_.size(); }
  // False where no directory could be locked: the process counts as alone.
  bool entered() const { return fd_.load() >= 0; }

  // Registers that this process holds `bytes` from now on; more than before only if all together hold no more
  // than `total_bytes` then, else false and nothing changes. To be called before more is taken, and after some
  // was given back. Looks at the others.
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
  os::Atomic<int> fd_{-1};       // of the directory; Close exchanges it
  int64_t place_ = 0;            // among the account's places
  uint64_t taken_ = 0;           // as registered
  std::vector<uint64_t> peers_;  // what each holds
};

// Directories that processes see in common if they have their memory from the same account of the kernel's:
// the root of the control groups, else /proc.
std::vector<std::string> HostMemoryShareDirectories();
// The highest directory above `directory` on the same file system; empty where there is none.
std::string MountRoot(const std::string& directory);

// Locks of NodeShare lie from here on; DiskOrder's are below.
inline constexpr int64_t kShareLocksStart = int64_t{1} << 61;

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_NODE_SHARE_H_
