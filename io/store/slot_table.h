// SlotTable: the state of each slot of one file: without contents, with bytes and their checksum, or with a
// write or reads under way. Pure; SpillStore has one per directory under its lock. Wrong use (a write over a
// pending read, a release of a busy slot) stops the process; nothing else fails.

#ifndef SPILLWAY_IO_STORE_SLOT_TABLE_H_
#define SPILLWAY_IO_STORE_SLOT_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "io/store/checksum.h"
#include "io/store/slot_allocator.h"

namespace spillway::io {

enum class WriteOutcome : uint8_t {
  kWritten,
  kFailed,      // nothing was damaged for good: canceled, or the disk was full
  kSuspect,     // the place may be bad: out of use until Trust
  kUnanswered,  // a late write may still reach the place: out of use until Answered
};

class SlotTable {
 public:
  // The result of a write to a slot.
  struct Contents {
    uint32_t bytes = 0;
    uint32_t generation = 0;
    Checksum checksum;
  };

  // Adds `count` free slots at the end of the file.
  void Grow(uint32_t count);
  // Removes the last `count` slots, which belong to the free tail.
  void Shrink(uint32_t count);
  // Takes a free slot; returns nothing when there is none.
  std::optional<uint32_t> Allocate();
  // Does the same, or else takes a suspect slot.
  std::optional<uint32_t> AllocateForProbe();
  // Gives a slot back. No write or read of it may be pending.
  void Release(uint32_t index);

  // Begins a write, which ends the old contents. An earlier write must not be unanswered. Returns the
  // generation for the checksum's seed.
  uint32_t BeginWrite(uint32_t index, uint32_t bytes);
  // Ends the write. After kWritten the slot has contents with this checksum.
  void EndWrite(uint32_t index, WriteOutcome outcome, Checksum checksum);

  // Called when the kernel has answered the write of a slot that ended with kUnanswered.
  void Answered(uint32_t index);
  // Called when the drive works: no slot is suspect any more.
  void Trust();

  // Begins a read. Returns the contents to expect, or nothing when the slot has no contents; then no EndRead
  // follows.
  std::optional<Contents> BeginRead(uint32_t index);
  void EndRead(uint32_t index);

  // ---- Moving: the store copies contents to a slot of another directory. The owner keeps its index.

  struct Place {
    uint32_t directory = 0;
    uint32_t index = 0;
  };
  // The first slot at or after `from` whose contents lie here, with no transfer pending.
  std::optional<uint32_t> NextToMove(uint32_t from) const;
  // Called when the contents are about to be copied. The owner may still write the slot or give it back until
  // EndMove.
  Contents BeginMove(uint32_t index);
  // Between the two: whether the owner writes the slot, has written it or has given it back. The bytes that
  // were read for the move must then not be judged.
  bool ChangedWhileMoving(uint32_t index, const Contents& contents) const {
    const Slot& slot = table_[index];
    return slot.moving && (!slot.has_data || slot.contents.generation != contents.generation);
  }
  // Returns true when the contents are still those of BeginMove. A slot that was given back meanwhile is free
  // now.
  bool EndMove(uint32_t index, const Contents& contents);
  // Records that the contents lie elsewhere from now on.
  void SetMoved(uint32_t index, Place place);
  std::optional<Place> MovedTo(uint32_t index) const { return table_[index].moved_to; }
  // Slots in use whose contents lie elsewhere.
  uint32_t moved_count() const { return moved_; }

  const SlotAllocator& slots() const { return slots_; }
  // Slots that were taken and whose first write has not begun, so writes are to be expected.
  uint32_t awaiting_write() const { return awaiting_write_; }

 private:
  struct Slot {
    Contents contents;
    uint32_t reads = 0;    // pending
    bool writing = false;  // pending
    bool has_data = false;
    bool suspect = false;
    bool unanswered = false;
    bool touched = false;  // a write has begun since it was taken
    bool moving = false;
    bool given_back = false;  // while it is moving
    std::optional<Place> moved_to;
  };

  Slot& InUse(uint32_t index);
  void RestoreIfGood(uint32_t index);
  void FreeOrQuarantine(uint32_t index);

  SlotAllocator slots_;
  std::vector<Slot> table_;
  uint32_t awaiting_write_ = 0;
  uint32_t moved_ = 0;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SLOT_TABLE_H_
