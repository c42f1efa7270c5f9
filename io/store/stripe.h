// Stripe: chooses the directory for the next slot: the one that would have written it and read it back
// soonest, at the measured speed of each direction, after the bytes that are queued. A slow or busy drive
// thus gets its share, not half. Pure arithmetic; SpillStore asks it for each slot that it gives out, under
// its lock.

#ifndef SPILLWAY_IO_STORE_STRIPE_H_
#define SPILLWAY_IO_STORE_STRIPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace spillway::io {

struct DirectoryLoad {
  uint64_t queued_write_bytes = 0;    // in flight, waiting, or expected for slots that were taken
  uint64_t queued_read_bytes = 0;     // in flight or waiting
  double write_bytes_per_second = 0;  // measured; 0: not known yet
  double read_bytes_per_second = 0;   // measured; 0: not known yet
  uint64_t passed_over_bytes = 0;     // given to the others since its last slot
  uint32_t free_slots = 0;
  bool usable = true;  // false: bad or full
};

// Index of the directory for one more slot of `slot_bytes`; nothing when no directory is usable and has a
// free slot.
//
// Both directions go on at the same time, and written bytes come back some time. The time of a slot is
// therefore the longer of two: the time to write the queued writes and the slot, and the time to read those
// bytes and the queued reads. An unknown speed counts as the fastest known one of its direction, or as no
// limit; ties go to the lowest index. A directory without queued writes that was passed over for 64 MiB gets
// one slot: it may be fast again, and only a write can show it.
std::optional<size_t> PickDirectory(std::span<const DirectoryLoad> loads, uint64_t slot_bytes);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_STRIPE_H_
