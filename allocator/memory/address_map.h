// AddressMap: finds the block that a device address belongs to, for all devices of the process, without a
// lock. It owns the one reservation of address space in which all blocks lie (cuMemAddressReserve, nothing
// mapped), which is cut into one equal slice per device, and a table with one word per chunk of the
// reservation. VaSpace places blocks in a slice; BlockTable knows their states.
//
// Hooks look addresses up on launching threads. The block table enters and removes blocks under its device's
// lock. Only Reserve can fail.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_ADDRESS_MAP_H_
#define SPILLWAY_ALLOCATOR_MEMORY_ADDRESS_MAP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/memory/block_id.h"
#include "io/os/atomic.h"

namespace spillway::allocator {

// Addresses at which the reservation is tried, the best first.
//
// Kernels also get numbers by value. A parameter word that happens to equal an address inside a block counts
// as that address, and the block is brought back for a launch that never uses it. The hints are therefore
// addresses that are unlikely numbers. Their upper half is a number from 0x5a00 to 0x7e00 whose upper 16 bits
// are 0. Read as two 32-bit integers, such an address has 23,040 to 32,255 as its second integer, beside a
// large first one: far above the shifts of PyTorch's IntDivider (0 to 32), with which NVIDIA's own choice,
// from 0x302000000 on, collides (docs/limits-integration.md). Read as two floats, its second one is a
// denormal number. Read as a double, it is about 1e-310; as a bf16 or fp16 quadruple, it has a zero there.
// Executables lie from 0x55 << 40 on and libraries below 0x7f << 40.
inline constexpr std::array<uint64_t, 4> kAddressHints = {uint64_t{0x6a} << 40, uint64_t{0x72} << 40,
                                                          uint64_t{0x62} << 40, uint64_t{0x5a} << 40};

class AddressMap {
 public:
  // Reserves `devices` slices of `bytes_per_device` bytes, rounded up to a power of two, at the first of
  // `hints` that the driver takes, or else at an address that the driver chooses. `chunk_bytes` is a power of
  // two and at least the device's granularity. Fails with the driver's error, or with the system's error when
  // there is no memory for the table.
  static absl::StatusOr<std::unique_ptr<AddressMap>> Reserve(
      const CudaDriver* driver, int devices, uint64_t bytes_per_device, uint64_t chunk_bytes,
      absl::Span<const uint64_t> hints = kAddressHints);
  // Leaves the reservation in place: tensors may outlive this object, and process exit frees it.
  ~AddressMap();

  // Adds the block at `address` to `set`. An address in the unmapped chunk between two blocks counts for both
  // of them, since it may be the end pointer of one. Any thread; takes no lock.
  void Collect(uint64_t address, AccessSet* set) const {
    const uint64_t offset = address - base_;
    if (offset < total_bytes_) CollectInside(offset, set);
  }
  // Does the same for an address inside the reservation, `offset` bytes from base().
  void CollectInside(uint64_t offset, AccessSet* set) const {
    const uint32_t raw = pages_[offset >> chunk_shift_].load(std::memory_order_acquire);
    if (__builtin_expect(raw != 0, 1)) {
      set->Add(BlockId::FromRaw(raw));
    } else {
      CollectNeighbors(offset >> chunk_shift_, set);
    }
  }
  bool Contains(uint64_t address) const { return address - base_ < total_bytes_; }

  // The block at `address`; an invalid id for guard chunks, free ranges and addresses that are not ours.
  BlockId Find(uint64_t address) const;

  // Adds every block with a byte in [address, address + bytes), for copies, memsets and unmaps of a range.
  void CollectRange(uint64_t address, uint64_t bytes, AccessSet* set) const;

  // Called by the block table under its device's lock, before a block is handed out and after it is gone.
  void Assign(uint64_t address, uint64_t bytes, BlockId id);
  void Clear(uint64_t address, uint64_t bytes);

  uint64_t base() const { return base_; }
  // Whether the driver took one of the hints. If it did not, numbers may be mistaken for addresses.
  bool at_hint() const { return at_hint_; }
  uint64_t total_bytes() const { return total_bytes_; }
  // Addresses inside the reservation that were looked up and named no block: numbers, or addresses of blocks
  // that are gone. A number that lies in a block looks like an address.
  uint64_t unmatched() const { return unmatched_.load(std::memory_order_relaxed); }
  uint64_t chunk_bytes() const { return uint64_t{1} << chunk_shift_; }
  uint64_t device_base(int device) const { return base_ + device * bytes_per_device_; }
  uint64_t bytes_per_device() const { return bytes_per_device_; }

 private:
  AddressMap(uint64_t base, bool at_hint, int devices, uint64_t bytes_per_device, int chunk_shift);
  void CollectNeighbors(uint64_t chunk, AccessSet* set) const;

  const uint64_t base_;
  const bool at_hint_;
  const uint64_t bytes_per_device_;
  const uint64_t total_bytes_;
  const int chunk_shift_;
  const uint64_t chunks_;
  // One word per chunk: BlockId::raw(), or 0 for no block. The release stores of Assign and Clear pair with
  // the acquire loads of the look-ups: a thread that reads an id also sees the block that was filled in
  // before.
  os::Atomic<uint32_t>* pages_;  // anonymous zero pages, touched only where blocks are
  // In a cache line of its own, since launches read the members above.
  alignas(64) mutable std::atomic<uint64_t> unmatched_{0};
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_ADDRESS_MAP_H_
