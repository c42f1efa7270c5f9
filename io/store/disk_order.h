// DiskOrder: decides which of the processes that spill to one file system is refused when it runs full: those
// that began last. Each process locks one byte of the mount's root directory, at the offset of the time at
// which it began. Nothing is written, and the kernel drops the locks of a process that ends. Processes that
// see the file system through mounts with different roots do not see each other. A process counts as alone
// when the lock cannot be taken. SpillStore has one object per file system. Any thread; nothing else fails.

#ifndef SPILLWAY_IO_STORE_DISK_ORDER_H_
#define SPILLWAY_IO_STORE_DISK_ORDER_H_

#include <cstdint>
#include <string>

#include "io/os/atomic.h"

namespace spillway::io {

class DiskOrder {
 public:
  // Enters this process for the file system of `directory`. If that fails, the process counts as alone.
  explicit DiskOrder(const std::string& directory);
  ~DiskOrder() { Close(); }
  DiskOrder(const DiskOrder&) = delete;
  DiskOrder& operator=(const DiskOrder&) = delete;

  // Whether other processes spill there, too, and all of them began later, so that they are refused first.
  // Any thread. Asks the kernel, not the disk.
  bool FirstOfSeveral() const;

  // Whether a process spills to the file system of `directory`. Only asks, and enters nobody, so processes
  // that ask at the same time are not mistaken for one that spills. False when that cannot be known. Any
  // thread.
  static bool IsUsed(const std::string& directory);

  // Removes the entry. Also for a forked child; the parent stays entered.
  void Close();

 private:
  // Whether another process has locked a byte in [from, from + bytes).
  bool OtherProcesses(int64_t from, int64_t bytes) const;

  os::Atomic<int> fd_{-1};  // descriptor of the root; Close exchanges it
  int64_t place_ = 0;       // the byte that is locked
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_DISK_ORDER_H_
