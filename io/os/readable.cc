#include "io/os/readable.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace spillway::os {
namespace {

// The kernel reads the set of signals before it examines the requested change. The requested change does not
// exist, so nothing is changed. Unlike process_vm_readv, this call also reads memory of devices' drivers, and
// needs no right to trace.
bool IsWordReadable(uint64_t address) {
  if (address == 0) return false;  // 0 would mean no set at all
  constexpr int kNoSuchChange = -1;
  const int before = errno;
  constexpr void* kNoOldSet = nullptr;
  const int64_t result = syscall(SYS_rt_sigprocmask, kNoSuchChange, address, kNoOldSet, sizeof(uint64_t));
  const bool readable = result == 0 || errno != EFAULT;
  errno = before;
  return readable;
}

}  // namespace

bool IsReadable(uint64_t address, uint64_t bytes) {
  constexpr uint64_t kPage = 4096;  // the smallest of any machine
  constexpr uint64_t kWord = sizeof(uint64_t);
  if (bytes == 0) return true;
  if (address + bytes < address) return false;
  // Checks one word of each page; no word crosses a page's edge.
  for (uint64_t at = address & ~(kWord - 1); at < address + bytes; at = (at & ~(kPage - 1)) + kPage) {
    if (!IsWordReadable(at)) return false;
  }
  return true;
}

}  // namespace spillway::os
