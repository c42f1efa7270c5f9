#include "io/store/slot_table.h"

#include <utility>

#include "io/os/check.h"

namespace spillway::io {

SlotTable::Slot& SlotTable::InUse(uint32_t index) {
  SPILLWAY_CHECK(slots_.InUse(index));
  return table_[index];
}

void SlotTable::Grow(uint32_t count) {
  slots_.Grow(count);
  table_.resize(slots_.size());
}

void SlotTable::Shrink(uint32_t count) {
  slots_.Shrink(count);
  table_.resize(slots_.size());
}

std::optional<uint32_t> SlotTable::Allocate() {
  const std::optional<uint32_t> index = slots_.Allocate();
  if (index) {
    Slot& slot = table_[*index];
    slot.has_data = false;
    slot.touched = false;
    ++awaiting_write_;
  }
  return index;
}

std::optional<uint32_t> SlotTable::AllocateForProbe() {
  for (uint32_t i = 0; i < table_.size() && slots_.free_count() == 0; ++i) {
    if (!slots_.IsQuarantined(i) || table_[i].unanswered) continue;
    table_[i].suspect = false;
    slots_.Restore(i);
  }
  return Allocate();
}

void SlotTable::Release(uint32_t index) {
  Slot& slot = InUse(index);
  SPILLWAY_CHECK(!slot.writing && !slot.given_back && (slot.reads == 0 || slot.moving));
  if (!slot.touched) --awaiting_write_;
  slot.has_data = false;
  if (slot.moved_to) --moved_;
  slot.moved_to.reset();
  if (slot.moving) {  // EndMove frees it
    slot.given_back = true;
  } else {
    FreeOrQuarantine(index);
  }
}

void SlotTable::FreeOrQuarantine(uint32_t index) {
  const Slot& slot = table_[index];
  if (slot.suspect || slot.unanswered) {
    slots_.Quarantine(index);
  } else {
    slots_.Free(index);
  }
}

uint32_t SlotTable::BeginWrite(uint32_t index, uint32_t bytes) {
  Slot& slot = InUse(index);
  SPILLWAY_CHECK(!slot.writing && (slot.reads == 0 || slot.moving) && !slot.unanswered && !slot.moved_to);
  if (!slot.touched) --awaiting_write_;
  slot.touched = true;
  slot.writing = true;
  slot.has_data = false;
  slot.contents.bytes = bytes;
  return ++slot.contents.generation;
}

void SlotTable::EndWrite(uint32_t index, WriteOutcome outcome, Checksum checksum) {
  Slot& slot = InUse(index);
  SPILLWAY_CHECK(slot.writing);
  slot.writing = false;
  slot.has_data = outcome == WriteOutcome::kWritten;
  slot.suspect = slot.suspect || outcome == WriteOutcome::kSuspect;
  slot.unanswered = outcome == WriteOutcome::kUnanswered;
  slot.contents.checksum = checksum;
}

void SlotTable::RestoreIfGood(uint32_t index) {
  const Slot& slot = table_[index];
  if (slots_.IsQuarantined(index) && !slot.suspect && !slot.unanswered) slots_.Restore(index);
}

void SlotTable::Answered(uint32_t index) {
  SPILLWAY_CHECK(index < table_.size());
  table_[index].unanswered = false;
  RestoreIfGood(index);
}

void SlotTable::Trust() {
  for (uint32_t i = 0; i < table_.size(); ++i) {
    table_[i].suspect = false;
    RestoreIfGood(i);
  }
}

std::optional<SlotTable::Contents> SlotTable::BeginRead(uint32_t index) {
  Slot& slot = InUse(index);
  SPILLWAY_CHECK(!slot.writing);
  if (!slot.has_data) return std::nullopt;
  ++slot.reads;
  return slot.contents;
}

void SlotTable::EndRead(uint32_t index) {
  Slot& slot = InUse(index);
  SPILLWAY_CHECK(slot.reads > 0);
  --slot.reads;
}

std::optional<uint32_t> SlotTable::NextToMove(uint32_t from) const {
  for (uint32_t i = from; i < table_.size(); ++i) {
    const Slot& slot = table_[i];
    if (slots_.InUse(i) && slot.has_data && slot.reads == 0 && !slot.moving) return i;
  }
  return std::nullopt;
}

SlotTable::Contents SlotTable::BeginMove(uint32_t index) {
  Slot& slot = InUse(index);
  SPILLWAY_CHECK(slot.has_data && !slot.moving);
  slot.moving = true;
  ++slot.reads;  // EndRead follows when the copy has been read
  return slot.contents;
}

bool SlotTable::EndMove(uint32_t index, const Contents& contents) {
  Slot& slot = InUse(index);
  SPILLWAY_CHECK(slot.moving);
  const bool changed = ChangedWhileMoving(index, contents);
  slot.moving = false;
  if (std::exchange(slot.given_back, false)) FreeOrQuarantine(index);
  return !changed;
}

void SlotTable::SetMoved(uint32_t index, Place place) {
  Slot& slot = InUse(index);
  slot.has_data = false;
  slot.moved_to = place;
  ++moved_;
}

}  // namespace spillway::io
