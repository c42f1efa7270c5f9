// VaSpace: places blocks in one device's slice of the reserved address space. It is address arithmetic only
// and maps nothing. Residency calls it under the lock of the block table when no freed block's address fits
// an allocation. An allocation fails when no range is free.
//
// One chunk between two blocks is never mapped, so that the end pointer of one never equals the start of the
// next. Addresses around multiples of 4 GiB are left out where possible. Two neighboring 32-bit integers, the
// first of which is small or a small negative number, look like such an address, and would keep the block
// there from leaving.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_VA_SPACE_H_
#define SPILLWAY_ALLOCATOR_MEMORY_VA_SPACE_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"

namespace spillway::allocator {

// Not thread-safe; the owner's lock guards it. All addresses and sizes are in bytes, blocks in chunks.
class VaSpace {
 public:
  VaSpace(uint64_t base, uint64_t bytes, uint64_t chunk_bytes);

  // Takes the lowest free range of `chunks` chunks that keeps off the multiples of 4 GiB, and returns its
  // start. A range that is too long to keep off them is taken all the same. kResourceExhausted when no range
  // is free.
  absl::StatusOr<uint64_t> Allocate(uint64_t chunks);
  // Gives back a range from Allocate and joins it with free neighbors.
  void Free(uint64_t address, uint64_t chunks);

  uint64_t free_bytes() const { return free_bytes_; }
  // Aborts unless the free ranges are in order, do not adjoin each other, and add up.
  void CheckInvariants() const;

 private:
  // The lowest address from `start` on at which `bytes`, guard chunk included, keep off the multiples of 4
  // GiB.
  uint64_t KeepOff(uint64_t start, uint64_t bytes) const;

  const uint64_t base_;
  const uint64_t bytes_;
  const uint64_t chunk_bytes_;
  std::map<uint64_t, uint64_t> free_;  // start -> bytes, guard chunks included, no two adjacent
  uint64_t free_bytes_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_VA_SPACE_H_
