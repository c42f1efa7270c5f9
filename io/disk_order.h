// DiskOrder: who of the processes that spill into one file system gives way when it runs full. Each holds a lock on one
// byte of the mount's root directory, at the offset of the time when it began. Nothing is written, and the kernel takes
// the locks of a process that dies. Processes that see the file system by mounts of different roots do not see each other.

#ifndef SPILLWAY_IO_DISK_ORDER_H_
#define SPILLWAY_IO_DISK_ORDER_H_

#include <cstdint>
#include <string>

#include "io/os/atomic.h"

namespace spillway::io {

class DiskOrder {
 public:
  // Enters this process for the file system of `directory`. Where that is not possible it is as if it was alone.
  explicit DiskOrder(const std::string& directory);
  ~DiskOrder() { Close(); }
  DiskOrder(const DiskOrder&) = delete;
  DiskOrder& operator=(const DiskOrder&) = delete;

  // True when others spill there, too, and all of them began later: they are refused first. Any thread; asks the kernel,
  // not the disk.
  bool FirstOfSeveral() const;

  // Leaves. Also in a forked child, where the parent stays entered.
  void Close();

 private:
  bool Others(int64_t from, int64_t bytes) const;

  os::Atomic<int> fd_{-1};  // of the root; Close exchanges it
  int64_t place_ = 0;       // the byte that is locked
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_DISK_ORDER_H_
