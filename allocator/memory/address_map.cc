#include "allocator/memory/address_map.h"

#include <sys/mman.h>

#include <bit>
#include <cerrno>

#include "io/os/check.h"
#include "io/os/errno.h"

namespace spillway::allocator {

namespace {

// Reserves at one of the hints. A driver that does not accept an address returns another one, which is freed
// again. Returns 0 when no hint was taken.
CUdeviceptr ReserveAtHint(const CudaDriver* driver, uint64_t bytes, uint64_t chunk_bytes,
                          absl::Span<const uint64_t> hints) {
  for (const uint64_t hint : hints) {
    CUdeviceptr base = 0;
    if (driver->cuMemAddressReserve(&base, bytes, chunk_bytes, hint, 0) != CUDA_SUCCESS) continue;
    if (base == hint) return base;
    driver->cuMemAddressFree(base, bytes);
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AddressMap>> AddressMap::Reserve(const CudaDriver* driver, int devices,
                                                                uint64_t bytes_per_device,
                                                                uint64_t chunk_bytes,
                                                                absl::Span<const uint64_t> hints) {
  SPILLWAY_CHECK(devices >= 1 && devices <= kMaxDevices && std::has_single_bit(chunk_bytes));
  const uint64_t slice = std::bit_ceil(bytes_per_device);
  const uint64_t total = slice * devices;
  CUdeviceptr base = ReserveAtHint(driver, total, chunk_bytes, hints);
  const bool at_hint = base != 0;
  if (!at_hint) {
    SPILLWAY_RETURN_IF_ERROR(
        driver->ToStatus(driver->cuMemAddressReserve(&base, total, chunk_bytes, 0, 0),
                         "reserving " + std::to_string(total >> 30) + " GiB of device address space"));
  }
  std::unique_ptr<AddressMap> map(
      new AddressMap(base, at_hint, devices, slice, std::countr_zero(chunk_bytes)));
  if (map->pages_ == nullptr) {
    const int error = errno;
    driver->cuMemAddressFree(base, total);
    return os::StatusFromErrno(error, "reserving the table of blocks");
  }
  return map;
}

AddressMap::AddressMap(uint64_t base, bool at_hint, int devices, uint64_t bytes_per_device, int chunk_shift)
    : base_(base),
      at_hint_(at_hint),
      bytes_per_device_(bytes_per_device),
      total_bytes_(bytes_per_device * devices),
      chunk_shift_(chunk_shift),
      chunks_(total_bytes_ >> chunk_shift) {
  void* const table = mmap(nullptr, chunks_ * sizeof(os::Atomic<uint32_t>), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  pages_ = table == MAP_FAILED ? nullptr : static_cast<os::Atomic<uint32_t>*>(table);
}

AddressMap::~AddressMap() {
  if (pages_ != nullptr) munmap(pages_, chunks_ * sizeof(os::Atomic<uint32_t>));
}

void AddressMap::CollectNeighbors(uint64_t chunk, AccessSet* set) const {
  // The address lies in a guard chunk or a free range. It may be one past the end of the previous block, or
  // at a negative offset from the start of the next one.
  const uint32_t before = chunk > 0 ? pages_[chunk - 1].load(std::memory_order_acquire) : 0;
  const uint32_t behind = chunk + 1 < chunks_ ? pages_[chunk + 1].load(std::memory_order_acquire) : 0;
  if (before != 0) set->Add(BlockId::FromRaw(before));
  if (behind != 0) set->Add(BlockId::FromRaw(behind));
  if ((before | behind) == 0) unmatched_.fetch_add(1, std::memory_order_relaxed);
}

BlockId AddressMap::Find(uint64_t address) const {
  const uint64_t offset = address - base_;
  if (offset >= total_bytes_) return BlockId();
  return BlockId::FromRaw(pages_[offset >> chunk_shift_].load(std::memory_order_acquire));
}

void AddressMap::CollectRange(uint64_t address, uint64_t bytes, AccessSet* set) const {
  if (bytes == 0) return;
  const uint64_t end = address + bytes;
  if (end <= base_ || address >= base_ + total_bytes_) return;
  const uint64_t first = (address < base_ ? 0 : address - base_) >> chunk_shift_;
  uint64_t last = (end - 1 - base_) >> chunk_shift_;
  if (last >= chunks_) last = chunks_ - 1;
  uint32_t previous = 0;
  for (uint64_t chunk = first; chunk <= last; ++chunk) {
    const uint32_t raw = pages_[chunk].load(std::memory_order_acquire);
    if (raw != 0 && raw != previous) set->Add(BlockId::FromRaw(raw));
    previous = raw;
  }
}

void AddressMap::Assign(uint64_t address, uint64_t bytes, BlockId id) {
  const uint64_t first = (address - base_) >> chunk_shift_;
  const uint64_t count = bytes >> chunk_shift_;
  for (uint64_t i = 0; i < count; ++i) pages_[first + i].store(id.raw(), std::memory_order_release);
}

void AddressMap::Clear(uint64_t address, uint64_t bytes) { Assign(address, bytes, BlockId()); }

}  // namespace spillway::allocator
