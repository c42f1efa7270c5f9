// SlotAllocator: the free slots of one file. Pure: no locks, no files. SlotTable owns one, and the store's
// lock guards it. The slot given back last is taken first, so that writes go to blocks that the file system
// has already written. Wrong use stops the process; nothing else fails.

#ifndef SPILLWAY_IO_STORE_SLOT_ALLOCATOR_H_
#define SPILLWAY_IO_STORE_SLOT_ALLOCATOR_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace spillway::io {

class SlotAllocator {
 public:
  // Adds slots [size(), size() + count) as free. The lowest of them is taken first.
  void Grow(uint32_t count);

  // Number of free slots at the end of the file, behind the last slot that is in use or out of use.
  uint32_t free_tail() const;

  // Removes the last `count` slots, which belong to the free tail.
  void Shrink(uint32_t count);

  // Takes a free slot; returns nothing when there is none.
  std::optional<uint32_t> Allocate();

  // Gives a slot back. It must be in use (checked: a slot that is given back twice would be taken for two
  // extents).
  void Free(uint32_t index);

  // Takes a slot that is in use out of use.
  void Quarantine(uint32_t index);
  // Makes a quarantined slot free again.
  void Restore(uint32_t index);

  bool InUse(uint32_t index) const { return index < in_use_.size() && in_use_[index]; }
  bool IsQuarantined(uint32_t index) const { return index < out_of_use_.size() && out_of_use_[index]; }
  uint32_t size() const { return static_cast<uint32_t>(in_use_.size()); }
  uint32_t free_count() const { return static_cast<uint32_t>(fresh_.size() + reused_.size()); }
  uint32_t quarantined_count() const { return quarantined_; }
  uint32_t in_use_count() const { return size() - free_count() - quarantined_; }

  // Aborts unless free, used and quarantined slots make up the file. Linear; for tests.
  void CheckInvariants() const;

 private:
  std::vector<bool> in_use_;      // handed out and not given back; also false for quarantined slots
  std::vector<bool> out_of_use_;  // quarantined
  std::vector<uint32_t> reused_;  // given back; the last one is taken first
  std::vector<uint32_t> fresh_;   // never used; taken when reused_ is empty
  uint32_t quarantined_ = 0;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SLOT_ALLOCATOR_H_
