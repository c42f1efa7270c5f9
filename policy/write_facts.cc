#include "policy/write_facts.h"

#include <algorithm>

namespace spillway::policy {

Writes WriteFacts::Answer(const Touch& touch) {
  if (touch.changed) return Writes::kYes;
  return touch.looks >= kLooksForNo ? Writes::kNo : Writes::kUnknown;
}

void WriteFacts::Note(uint64_t tag, uint32_t operand, bool changed) {
  ++observations_;
  Touch& touch = touches_[{tag, operand}];
  const Writes before = Answer(touch);
  if (changed) {
    touch.changed = true;
  } else if (touch.looks < kLooksForNo) {
    ++touch.looks;
  }
  if (Answer(touch) != before) ++version_;
}

void WriteFacts::Doubt(uint64_t tag, uint32_t operand) {
  const auto found = touches_.find({tag, operand});
  if (found == touches_.end()) return;
  if (Answer(found->second) == Writes::kNo) ++version_;
  found->second.looks = 0;
}

Writes WriteFacts::Of(uint64_t tag, uint32_t operand) const {
  const auto found = touches_.find({tag, operand});
  return found == touches_.end() ? Writes::kUnknown : Answer(found->second);
}

size_t WriteFacts::CountOf(Writes writes) const {
  return std::count_if(touches_.begin(), touches_.end(),
                       [writes](const auto& entry) { return Answer(entry.second) == writes; });
}

}  // namespace spillway::policy
