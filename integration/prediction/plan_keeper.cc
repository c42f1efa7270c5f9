#include "integration/prediction/plan_keeper.h"

#include <utility>

namespace spillway::integration {

LearntFacts PlanKeeper::Facts() {
  if (write_facts_) writes_ = write_facts_();
  return {&times_, writes_.get()};
}

SequencePlan* PlanKeeper::PlanNow() {
  const auto found = plans_.find(job_.sequence());
  return job_.sequence() == policy::kNoSequence || found == plans_.end() ? nullptr : found->second.get();
}

PlanKeeper::Plan PlanKeeper::Enter(const allocator::Residency* residency) {
  std::unique_ptr<SequencePlan>& plan = plans_[job_.sequence()];
  if (plan == nullptr) {
    plan = std::make_unique<SequencePlan>(job_.iteration(), job_.sizes(), MachineNow(residency), Facts());
  } else {
    ++readoptions_;
  }
  iterations_ = job_.IterationsDone();
  entered_ = true;
  plan->RecordIterations(0);
  return Current();
}

void PlanKeeper::ForgetUnknown() {
  std::erase_if(plans_, [this](const auto& one) { return !job_.tracker().Knows(one.first); });
}

PlanKeeper::Plan PlanKeeper::Current() {
  SequencePlan* const plan = PlanNow();
  if (plan == nullptr) return nullptr;
  forecast_ = plan->forecast();
  accesses_ = plan->accesses();
  accesses_known_ = plan->accesses_known();
  return plan->From(job_.tracker().start());
}

PlanKeeper::Change PlanKeeper::KeepUpToDate(const allocator::Residency* residency) {
  SequencePlan* const plan = PlanNow();
  if (plan == nullptr) return Change::kNone;
  const policy::RuntimeMachine machine = MachineNow(residency);
  const bool iteration_ended = job_.IterationsDone() != iterations_;
  iterations_ = job_.IterationsDone();
  plan->RecordIterations(iterations_);
  const bool due_for_check = (std::exchange(entered_, false) || iteration_ended) && plan->DueForCheck();
  if (plan->MemoryChanged(machine) ||
      (due_for_check && plan->OutOfDate(job_.iteration(), job_.sizes(), machine, Facts()))) {
    auto anew = std::make_unique<SequencePlan>(job_.iteration(), job_.sizes(), machine, Facts());
    anew->GoOnFrom(*plan);
    plans_[job_.sequence()] = std::move(anew);
    return Change::kAnew;
  }
  return iteration_ended && plan->HasBetter() ? Change::kBetter : Change::kNone;
}

bool PlanKeeper::Improve() {
  SequencePlan* const plan = PlanNow();
  if (plan == nullptr) return false;
  const bool more = plan->Improve();
  forecast_ = plan->forecast();
  return more;
}

// ---- Hints.

PlanKeeper::Plan PlanKeeper::MakeHints(const policy::MigrationPlan& plan) {
  hints_.emplace(job_.iteration(), plan);
  return hints_->Plan();
}

void PlanKeeper::FollowHints(policy::LaunchIndex index, const policy::LaunchRecord& launch) {
  if (hints_ && job_.sequence() == policy::kNoSequence) hints_moved_ |= hints_->Follow(index, launch);
}

bool PlanKeeper::TakeMovedHints(Plan* plan) {
  if (!std::exchange(hints_moved_, false) || !hints_ || job_.sequence() != policy::kNoSequence) return false;
  *plan = hints_->Plan();
  if (*plan == nullptr) hints_.reset();
  return true;
}

}  // namespace spillway::integration
