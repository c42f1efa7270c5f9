// Stripe: chooses the directory for the next slot. It is the one that would have written its queue and this
// slot soonest at its measured speed. A slow or busy drive thus gets its share, not half. Pure arithmetic;
// SpillStore asks it for each slot that it gives out, under its lock.

#ifndef SPILLWAY_IO_STRIPE_H_
#define SPILLWAY_IO_STRIPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace spillway::io {

struct DirectoryLoad {
  uint64_t queued_bytes = 0;    // in flight, waiting, or expected for slots that were taken
  double bytes_per_second = 0;  // measured; 0: not known yet
  uint32_t free_slots = 0;
  bool usable = true;  // false: bad or full
};

// Index of the directory for one more slot of `slot_bytes`; nothing when none is usable with a free slot.
// Directories of unknown speed count as fast as the fastest known one; ties go to the lowest index.
std::optional<size_t> PickDirectory(std::span<const DirectoryLoad> loads, uint64_t slot_bytes);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STRIPE_H_
