#include "io/store/slot_allocator.h"

#include "io/os/check.h"

namespace spillway::io {

void SlotAllocator::Grow(uint32_t count) {
  const uint32_t first = size();
  in_use_.resize(first + count, false);
  out_of_use_.resize(first + count, false);
  std::vector<uint32_t> fresh;
  fresh.reserve(fresh_.size() + count);
  for (uint32_t i = 0; i < count; ++i) fresh.push_back(first + count - 1 - i);
  // Older fresh slots lie lower in the file and are taken before the new ones.
  fresh.insert(fresh.end(), fresh_.begin(), fresh_.end());
  fresh_ = std::move(fresh);
}

uint32_t SlotAllocator::free_tail() const {
  uint32_t first = size();
  while (first > 0 && !in_use_[first - 1] && !out_of_use_[first - 1]) --first;
  return size() - first;
}

void SlotAllocator::Shrink(uint32_t count) {
  SPILLWAY_CHECK(count <= free_tail());
  const uint32_t end = size() - count;
  in_use_.resize(end);
  out_of_use_.resize(end);
  for (std::vector<uint32_t>* list : {&reused_, &fresh_}) {
    std::erase_if(*list, [end](uint32_t index) { return index >= end; });
  }
}

std::optional<uint32_t> SlotAllocator::Allocate() {
  std::vector<uint32_t>& from = reused_.empty() ? fresh_ : reused_;
  if (from.empty()) return std::nullopt;
  const uint32_t index = from.back();
  from.pop_back();
  in_use_[index] = true;
  return index;
}

void SlotAllocator::Free(uint32_t index) {
  SPILLWAY_CHECK(InUse(index));
  in_use_[index] = false;
  reused_.push_back(index);
}

void SlotAllocator::Quarantine(uint32_t index) {
  SPILLWAY_CHECK(InUse(index));
  in_use_[index] = false;
  out_of_use_[index] = true;
  ++quarantined_;
}

void SlotAllocator::Restore(uint32_t index) {
  SPILLWAY_CHECK(IsQuarantined(index));
  out_of_use_[index] = false;
  --quarantined_;
  reused_.push_back(index);
}

void SlotAllocator::CheckInvariants() const {
  std::vector<bool> seen = in_use_;
  uint32_t used = 0;
  for (const bool b : in_use_) used += b ? 1 : 0;
  for (size_t i = 0; i < seen.size(); ++i) SPILLWAY_CHECK(!(in_use_[i] && out_of_use_[i]));
  for (const std::vector<uint32_t>* list : {&reused_, &fresh_}) {
    for (const uint32_t index : *list) {
      SPILLWAY_CHECK(index < seen.size() && !seen[index]);  // free once, and not in use
      seen[index] = true;
    }
  }
  SPILLWAY_CHECK(used + free_count() + quarantined_ == size());
}

}  // namespace spillway::io
