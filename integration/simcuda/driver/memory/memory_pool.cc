#include "integration/simcuda/driver/memory/memory_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace simcuda {
namespace {

constexpr uint64_t kLargestStretch = uint64_t{16} << 40;
constexpr uint64_t kSmallestStretch = uint64_t{32} << 30;
constexpr uint64_t kHostFileBytes = uint64_t{4} << 40;  // sparse

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Where NVIDIA's driver places reservations that come without a hint: a 32 GiB pool in a trace of llama.cpp
// under cuda-gdb began here.
constexpr uint64_t kDriversBase = 0x302000000;

// An inaccessible stretch of exactly these addresses; false when something else lies there. ThreadSanitizer
// has no shadow for most addresses, and takes a wish for one of them as one for address 0.
bool ReserveAt(uint64_t start, uint64_t size) {
#if defined(__SANITIZE_THREAD__)
  return false;
#endif
  void* const got = mmap(Pointer(start), size, PROT_NONE, kReserved | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != MAP_FAILED && got != Pointer(start))
    munmap(got, size);  // a kernel that takes the address for a hint
  return got == Pointer(start);
}

// An inaccessible stretch of at most *size bytes (halved until the process can have it), aligned to huge
// pages; at `wanted` where that is free.
uint64_t ReserveStretch(uint64_t wanted, uint64_t* size) {
  for (; *size >= kSmallestStretch; *size /= 2) {
    if (wanted != 0 && ReserveAt(wanted, *size)) return wanted;
    void* start = mmap(nullptr, *size + kHugePage, PROT_NONE, kReserved, -1, 0);
    if (start == MAP_FAILED) continue;
    return (reinterpret_cast<uint64_t>(start) + kHugePage - 1) & ~(kHugePage - 1);
  }
  return 0;
}

// A child of a fork has no device memory, and must not pay for copying its page tables.
void AdviseForDevice(uint64_t start, uint64_t size) {
  madvise(Pointer(start), size, MADV_DONTFORK);
  madvise(Pointer(start), size, MADV_DONTDUMP);
  if (size >= kHugePage) madvise(Pointer(start), size, MADV_HUGEPAGE);
}

// Makes a part of the visible stretch as it was at first. A fresh mapping merges with its neighbors; without
// it every address that was ever in use would count against vm.max_map_count for good.
bool Forget(uint64_t address, uint64_t size) {
  return mmap(Pointer(address), size, PROT_NONE, kReserved | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace

bool MemoryPool::Init() {
  visible_size_ = kLargestStretch;
  visible_start_ = ReserveStretch(kDriversBase, &visible_size_);
  uint64_t homes_size = visible_size_ / 4;
  const uint64_t homes_start = visible_start_ == 0 ? 0 : ReserveStretch(0, &homes_size);
  if (homes_start == 0) return false;
  AdviseForDevice(homes_start, homes_size);  // what moves away from there keeps these
  homes_.Reset(homes_start, homes_size);
  return true;
}

bool MemoryPool::AddHinted(uint64_t start, uint64_t size) {
  if (hinted_start_.load() != 0 || !ReserveAt(start, size)) return false;
  hinted_size_.store(size, std::memory_order_relaxed);
  hinted_start_.store(start, std::memory_order_release);
  return true;
}

uint64_t MemoryPool::TakeHome(uint64_t size) { return homes_.Take(size, std::min(size & -size, kHugePage)); }

void MemoryPool::GiveHome(uint64_t home, uint64_t size) {
  madvise(Pointer(home), size, MADV_DONTNEED);
  homes_.Give(home, size);
}

bool MemoryPool::MoveIn(uint64_t home, uint64_t address, uint64_t size, Touch touch) {
  constexpr int kMove = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  if (mremap(Pointer(home), size, size, kMove, Pointer(address)) == MAP_FAILED) return false;
  if (OpenPages(address, size, touch)) return true;
  MoveOut(address, home, size);
  return false;
}

bool MemoryPool::MoveOut(uint64_t address, uint64_t home, uint64_t size) {
  // Inaccessible first: what is left at the address between the two calls must not look like memory.
  if (!ClosePages(address, size)) return false;
  constexpr int kMove = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  if (mremap(Pointer(address), size, size, kMove, Pointer(home)) == MAP_FAILED) return false;
  return Forget(address, size);
}

uint64_t MemoryPool::TakeHostPlace(uint64_t size) {
  if (host_file_ < 0) {
    host_file_ = memfd_create("simcuda host memory", MFD_CLOEXEC);
    if (host_file_ < 0 || ftruncate(host_file_, static_cast<off_t>(kHostFileBytes)) != 0) return 0;
    host_places_.Reset(kHugePage, kHostFileBytes - kHugePage);  // no place is 0
  }
  return host_places_.Take(size, std::min(size & -size, kHugePage));
}

void MemoryPool::GiveHostPlace(uint64_t place, uint64_t size) {
  fallocate(host_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(place),
            static_cast<off_t>(size));
  host_places_.Give(place, size);
}

bool MemoryPool::MapHostPlace(uint64_t place, uint64_t address, uint64_t size, Touch touch) {
  constexpr int kFlags = MAP_SHARED | MAP_FIXED;
  if (mmap(Pointer(address), size, PROT_NONE, kFlags, host_file_, static_cast<off_t>(place)) == MAP_FAILED)
    return false;
  if (!OpenPages(address, size, touch)) {
    Forget(address, size);
    return false;
  }
  AdviseForDevice(address, size);
  return true;
}

bool MemoryPool::Populate(uint64_t address, uint64_t size) {
  if (!OpenPages(address, size, Touch::kDevice)) return false;
  AdviseForDevice(address, size);
  return true;
}

void MemoryPool::Depopulate(uint64_t address, uint64_t size) { Forget(address, size); }

bool MemoryPool::PopulateFrom(int descriptor, uint64_t address, uint64_t size) {
  constexpr int kFlags = MAP_SHARED | MAP_FIXED;
  if (mmap(Pointer(address), size, PROT_NONE, kFlags, descriptor, 0) == MAP_FAILED) return false;
  if (!OpenPages(address, size, Touch::kDevice)) {
    Forget(address, size);
    return false;
  }
  AdviseForDevice(address, size);
  return true;
}

void FillWithPoison(uint64_t address, uint64_t bytes) {
  const DeviceRights rights;
  std::fill_n(reinterpret_cast<uint64_t*>(address), bytes / sizeof(uint64_t), uint64_t{0xfffefffefffefffe});
}

}  // namespace simcuda
