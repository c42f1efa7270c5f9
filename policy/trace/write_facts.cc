#include "policy/trace/write_facts.h"

namespace spillway::policy {

Writes WriteFacts::Answer(const Touch& touch) {
  if (touch.changed) return Writes::kYes;
  return touch.looks >= kLooksForNo ? Writes::kNo : Writes::kUnknown;
}

void WriteFacts::Note(uint64_t tag, uint32_t operand, bool changed) {
  Touch& touch = touches_[{tag, operand}];
  const Writes before = Answer(touch);
  if (changed) {
    touch.changed = true;
  } else if (touch.looks < kLooksForNo) {
    ++touch.looks;
  }
  if (Answer(touch) != before) ++version_;
}

Writes WriteFacts::Of(uint64_t tag, uint32_t operand) const {
  const auto found = touches_.find({tag, operand});
  return found == touches_.end() ? Writes::kUnknown : Answer(found->second);
}

}  // namespace spillway::policy
