#include "allocator/tier/pinned_slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/os/atomic.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kHugePage = 2 << 20;

uint64_t WholePages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Maps anonymous memory, in huge pages if the kernel gives them. The memory is kept out of forked children,
// whose copy-on-write would move pages from which the device copies, and out of core files, which would
// contain the job's tensors.
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
  madvise(slab, bytes, MADV_DONTDUMP);
  return slab;
}

// The part of a slab that one thread fills at a time, and the most threads that do so. They are at most a
// quarter of the processors, since the job has others to keep busy.
constexpr uint64_t kFilledAtOnce = 4 << 20;
constexpr unsigned kMaxFillers = 4;

unsigned FillersOf(uint64_t bytes) {
  const auto pieces = static_cast<unsigned>(std::min<uint64_t>(bytes / kFilledAtOnce, kMaxFillers));
  return std::clamp(std::thread::hardware_concurrency() / 4, 1u, std::max(1u, pieces));
}

// Gives the slab its pages. The driver also does so when it registers memory without pages, but on one thread
// and under locks that launches need: 1 to 2 GB/s with pages of 4 KiB, as others report. The driver does it
// where the kernel lacks the call (before 5.14). Fails with ENOMEM when a limit is reached.
absl::Status Populate(std::byte* slab, uint64_t bytes) {
  os::Atomic<uint64_t> next{0};
  os::Atomic<int> failure{0};
  const auto fill = [&] {
    for (uint64_t at = next.fetch_add(kFilledAtOnce); at < bytes; at = next.fetch_add(kFilledAtOnce)) {
      if (madvise(slab + at, std::min(kFilledAtOnce, bytes - at), MADV_POPULATE_WRITE) != 0)
        failure.store(errno);
    }
  };
  std::vector<os::Thread> fillers;
  while (fillers.size() + 1 < FillersOf(bytes)) {
    absl::StatusOr<os::Thread> filler = os::StartThread("spill-fill", fill);
    if (!filler.ok()) break;  // the others do it
    fillers.push_back(*std::move(filler));
  }
  fill();
  for (os::Thread& filler : fillers) filler.join();
  if (failure.load() == 0 || failure.load() == EINVAL) return absl::OkStatus();
  return os::StatusFromErrno(failure.load(), "taking " + std::to_string(bytes) + " bytes of host memory");
}

}  // namespace

absl::StatusOr<std::byte*> PinSlab(const CudaDriver* driver, CUcontext context, uint64_t wanted_bytes) {
  const uint64_t bytes = WholePages(wanted_bytes);
  std::byte* const slab = MapSlab(bytes);
  if (slab == nullptr)
    return os::StatusFromErrno(errno, "mapping " + std::to_string(bytes) + " bytes of host memory");
  absl::Status status = Populate(slab, bytes);
  if (status.ok()) {
    ScopedContext scope(driver, context);
    status = driver->ToStatus(driver->cuMemHostRegister_v2(slab, bytes, CU_MEMHOSTREGISTER_PORTABLE),
                              "pinning " + std::to_string(bytes) + " bytes of host memory");
  }
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
