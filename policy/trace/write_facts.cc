#include "policy/trace/write_facts.h"

namespace spillway::policy {

Writes WriteFacts::Answer(const Access& access) {
  if (access.changed) return Writes::kYes;
  return access.looks >= kLooksForNo ? Writes::kNo : Writes::kUnknown;
}

void WriteFacts::Note(uint64_t tag, uint32_t operand, bool changed) {
  Access& access = accesses_[{tag, operand}];
  const Writes before = Answer(access);
  if (changed) {
    access.changed = true;
  } else if (access.looks < kLooksForNo) {
    ++access.looks;
  }
  if (Answer(access) != before) ++version_;
}

Writes WriteFacts::Of(uint64_t tag, uint32_t operand) const {
  const auto found = accesses_.find({tag, operand});
  return found == accesses_.end() ? Writes::kUnknown : Answer(found->second);
}

}  // namespace spillway::policy
