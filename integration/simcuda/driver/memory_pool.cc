#include "integration/simcuda/driver/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>

namespace simcuda {
namespace {

constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kLargestStretch = uint64_t{16} << 40;
constexpr uint64_t kSmallestStretch = uint64_t{32} << 30;

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// An inaccessible stretch of at most *size bytes (halved until the process has room), aligned to huge pages.
uint64_t ReserveStretch(uint64_t* size) {
  for (; *size >= kSmallestStretch; *size /= 2) {
    void* start =
        mmap(nullptr, *size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) continue;
    const uint64_t aligned = (reinterpret_cast<uint64_t>(start) + kHugePage - 1) & ~(kHugePage - 1);
    // A child of a fork has no device memory, and must not pay for copying its page tables.
    madvise(Pointer(aligned), *size, MADV_DONTFORK);
    madvise(Pointer(aligned), *size, MADV_HUGEPAGE);
    madvise(Pointer(aligned), *size, MADV_DONTDUMP);
    return aligned;
  }
  return 0;
}

}  // namespace

bool MemoryPool::Init() {
  visible_size_ = kLargestStretch;
  visible_start_ = ReserveStretch(&visible_size_);
  uint64_t homes_size = visible_size_ / 4;
  const uint64_t homes_start = visible_start_ == 0 ? 0 : ReserveStretch(&homes_size);
  if (homes_start == 0) return false;
  homes_.Reset(homes_start, homes_size);
  return true;
}

uint64_t MemoryPool::TakeHome(uint64_t size) { return homes_.Take(size, std::min(size & -size, kHugePage)); }

void MemoryPool::GiveHome(uint64_t home, uint64_t size) {
  madvise(Pointer(home), size, MADV_DONTNEED);
  homes_.Give(home, size);
}

bool MemoryPool::MoveIn(uint64_t home, uint64_t address, uint64_t size) {
  void* moved =
      mremap(Pointer(home), size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, Pointer(address));
  return moved != MAP_FAILED && mprotect(Pointer(address), size, PROT_READ | PROT_WRITE) == 0;
}

bool MemoryPool::MoveOut(uint64_t address, uint64_t home, uint64_t size) {
  if (mprotect(Pointer(address), size, PROT_NONE) != 0) return false;
  return mremap(Pointer(address), size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                Pointer(home)) != MAP_FAILED;
}

bool MemoryPool::Populate(uint64_t address, uint64_t size) {
  return mprotect(Pointer(address), size, PROT_READ | PROT_WRITE) == 0;
}

void MemoryPool::Depopulate(uint64_t address, uint64_t size) {
  mprotect(Pointer(address), size, PROT_NONE);
  madvise(Pointer(address), size, MADV_DONTNEED);
}

void FillWithPoison(uint64_t address, uint64_t bytes) {
  std::fill_n(reinterpret_cast<uint64_t*>(address), bytes / sizeof(uint64_t), uint64_t{0xfffefffefffefffe});
}

}  // namespace simcuda
