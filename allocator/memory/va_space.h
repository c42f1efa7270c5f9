// VaSpace: places blocks in one device's slice of the reserved address space. Address arithmetic only: nothing is
// mapped here. Between two blocks lies one chunk that is never mapped, so that an end pointer of one never equals
// the start of the next. Addresses around multiples of 4 GiB are left out where possible: two 32-bit integers in a
// row, the lower of them small or a small negative one, look like such an address, and would hold its block.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_VA_SPACE_H_
#define SPILLWAY_ALLOCATOR_MEMORY_VA_SPACE_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"

namespace spillway::allocator {

// Not thread-safe: guarded by its owner's lock.
class VaSpace {
 public:
  VaSpace(uint64_t base, uint64_t bytes, uint64_t chunk_bytes);

  // Start of a free range of `chunks` chunks, the lowest that fits and, unless it is too long for that, keeps off the
  // multiples of 4 GiB. kResourceExhausted when none does.
  absl::StatusOr<uint64_t> Allocate(uint64_t chunks);
  // Gives a range from Allocate back; joins it with free neighbours.
  void Free(uint64_t address, uint64_t chunks);

  uint64_t free_bytes() const { return free_bytes_; }
  // Aborts unless the free ranges are in order, apart from each other and add up.
  void CheckInvariants() const;

 private:
  // The lowest address from `start` on for a block of `bytes`, its guard included, that keeps off.
  uint64_t KeepOff(uint64_t start, uint64_t bytes) const;

  const uint64_t base_;
  const uint64_t bytes_;
  const uint64_t chunk_bytes_;
  std::map<uint64_t, uint64_t> free_;  // start -> bytes, guard chunks included, no two adjacent
  uint64_t free_bytes_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_VA_SPACE_H_
