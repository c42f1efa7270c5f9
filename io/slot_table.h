// SlotTable: what each slot of one file holds: nothing, bytes with their checksum, or a write or reads under way. Pure:
// the store's lock protects it. Every wrong use (a write over a pending read, a release of a busy slot) is checked.

#ifndef SPILLWAY_IO_SLOT_TABLE_H_
#define SPILLWAY_IO_SLOT_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "io/checksum.h"
#include "io/slot_allocator.h"

namespace spillway::io {

enum class WriteOutcome : uint8_t {
  kWritten,
  kFailed,       // nothing was damaged for good: cancelled, or the disk was full
  kSlotSuspect,  // the place itself is not to be trusted, or a late write may still land in it
};

class SlotTable {
 public:
  struct Contents {
    uint32_t bytes = 0;
    uint32_t generation = 0;
    Checksum checksum;
  };

  void Grow(uint32_t count);
  void Shrink(uint32_t count);  // the last ones, of the free tail
  std::optional<uint32_t> Allocate();
  void Release(uint32_t index);  // no write or read pending

  // A write begins; returns the generation for its seed. What the slot held is gone.
  uint32_t BeginWrite(uint32_t index, uint32_t bytes);
  void EndWrite(uint32_t index, WriteOutcome outcome, Checksum checksum);

  // A read begins: what to expect, or nothing when the slot holds nothing.
  std::optional<Contents> BeginRead(uint32_t index);
  void EndRead(uint32_t index);

  const SlotAllocator& slots() const { return slots_; }
  // Slots handed out whose first write has not begun: bytes that are to be expected.
  uint32_t awaiting_write() const { return awaiting_write_; }

 private:
  struct Slot {
    Contents contents;
    uint32_t reads = 0;    // pending
    bool writing = false;  // pending
    bool holds_data = false;
    bool suspect = false;
    bool touched = false;  // a write began since it was handed out
  };

  Slot& InUse(uint32_t index);

  SlotAllocator slots_;
  std::vector<Slot> table_;
  uint32_t awaiting_write_ = 0;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_SLOT_TABLE_H_
