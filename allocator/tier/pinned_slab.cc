#include "allocator/tier/pinned_slab.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kHugePage = 2 << 20;

uint64_t WholePages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Maps anonymous memory, in huge pages where the kernel gives them. It is kept out of forked children: a
// child's copy-on-write would move pages that the device copies from.
std::byte* MapSlab(uint64_t bytes) {
  const uint64_t padded = bytes + kHugePage;
  void* const raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uint64_t start = reinterpret_cast<uint64_t>(raw);
  const uint64_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > start) munmap(raw, aligned - start);
  const uint64_t end = aligned + bytes;
  mprotect(reinterpret_cast<void*>(end), kSlabGuard, PROT_NONE);
  const uint64_t tail = start + padded - (end + kSlabGuard);
  if (tail > 0) munmap(reinterpret_cast<void*>(end + kSlabGuard), tail);
  auto* const slab = reinterpret_cast<std::byte*>(aligned);
  madvise(slab, bytes, MADV_HUGEPAGE);
  madvise(slab, bytes, MADV_DONTFORK);
  return slab;
}

}  // namespace

absl::StatusOr<std::byte*> PinSlab(const CudaDriver* driver, CUcontext context, uint64_t wanted_bytes) {
  const uint64_t bytes = WholePages(wanted_bytes);
  std::byte* const slab = MapSlab(bytes);
  if (slab == nullptr)
    return os::StatusFromErrno(errno, "mapping " + std::to_string(bytes) + " bytes of host memory");
  ScopedContext scope(driver, context);
  const absl::Status status =
      driver->ToStatus(driver->cuMemHostRegister_v2(slab, bytes, CU_MEMHOSTREGISTER_PORTABLE),
                       "pinning " + std::to_string(bytes) + " bytes of host memory");
  if (status.ok()) return slab;
  munmap(slab, bytes + kSlabGuard);
  return status;
}

bool UnpinSlab(const CudaDriver* driver, CUcontext context, std::byte* slab, uint64_t wanted_bytes) {
  const uint64_t bytes = WholePages(wanted_bytes);
  ScopedContext scope(driver, context);
  const absl::Status status = driver->ToStatus(driver->cuMemHostUnregister(slab), "unpinning host memory");
  if (!status.ok()) {
    os::Log(os::LogLevel::kWarn, std::string(status.message()));
    return false;
  }
  munmap(slab, bytes + kSlabGuard);
  return true;
}

}  // namespace spillway::allocator
