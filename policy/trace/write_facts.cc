#include "policy/trace/write_facts.h"

namespace spillway::policy {

// Known by observations of this run, and by other facts that they confirm.
Writes WriteFacts::Found(const Access& access) {
  if (access.changed) return Writes::kYes;
  const uint32_t enough = access.guess == Writes::kNo ? 1 : kSamplesForNo;
  return access.unchanged >= enough ? Writes::kNo : Writes::kUnknown;
}

Writes WriteFacts::Answer(const Access& access) {
  const Writes found = Found(access);
  return found == Writes::kUnknown ? access.guess : found;
}

void WriteFacts::Record(LaunchForm form, uint32_t operand, bool changed) {
  Access& access = accesses_[{form, operand}];
  const Writes before = Answer(access);
  if (changed) {
    access.changed = true;
  } else if (access.unchanged < kSamplesForNo) {
    ++access.unchanged;
  }
  if (Answer(access) != before) ++version_;
}

void WriteFacts::Guess(const FormFacts& guess) {
  for (uint32_t operand = 0; operand < FormFacts::kMaxOperands && operand < guess.form.blocks; ++operand) {
    const uint64_t bit = uint64_t{1} << operand;
    if (((guess.reads | guess.writes) & bit) == 0) continue;
    Access& access = accesses_[{guess.form, operand}];
    if (access.guess != Writes::kUnknown) continue;
    const Writes before = Answer(access);
    access.guess = (guess.writes & bit) != 0 ? Writes::kYes : Writes::kNo;
    if (Answer(access) != before) ++version_;
  }
}

Writes WriteFacts::Of(LaunchForm form, uint32_t operand) const {
  const auto found = accesses_.find({form, operand});
  return found == accesses_.end() ? Writes::kUnknown : Answer(found->second);
}

bool WriteFacts::Settled(LaunchForm form, uint32_t operand) const {
  const auto found = accesses_.find({form, operand});
  return found != accesses_.end() && Found(found->second) != Writes::kUnknown;
}

std::vector<FormFacts> WriteFacts::SettledForms() const {
  std::unordered_map<Key, FormFacts, Hash> forms;
  for (const auto& [key, access] : accesses_) {
    const Writes found = Found(access);
    if (found == Writes::kUnknown || key.operand >= FormFacts::kMaxOperands) continue;
    FormFacts& facts = forms[{key.form, 0}];
    facts.form = key.form;
    (found == Writes::kYes ? facts.writes : facts.reads) |= uint64_t{1} << key.operand;
  }
  std::vector<FormFacts> settled;
  settled.reserve(forms.size());
  for (const auto& [key, facts] : forms) settled.push_back(facts);
  return settled;
}

}  // namespace spillway::policy
