#include "tests/policy/streams/stream_follower.h"

#include <algorithm>

#include "policy/trace/recorded_workload.h"

namespace spillway::policy {

StreamFollower::StreamFollower(const Stream& stream, const Machine& machine, Nanos launch)
    : stream_(stream), tracker_(IterationOptions()) {
  machine_.machine = machine;
  machine_.run_ahead = RunAhead();
  times_.Add({/*own=*/1}, launch);
}

bool StreamFollower::Add(LaunchIndex index) {
  tracker_.Add(stream_.trace, index, std::ranges::binary_search(stream_.marks, index));
  if (tracker_.version() != settled_version_) {
    settled_version_ = tracker_.version();
    if (tracker_.sequence() != kNoSequence) {
      planned_ = tracker_.sequence();
      plan_ = PlanOf(planned_, steady_ = false);
      hints_.reset();
      return true;
    }
    if (plan_ == nullptr) return false;
    hints_.emplace(tracker_.IterationOf(planned_), *plan_);
    hints_->Follow(index, stream_.trace.at(index));
  } else if (!hints_ && TakeSteadyPlan(index)) {
    return true;
  } else if (!hints_ || !hints_->Follow(index, stream_.trace.at(index))) {
    return false;
  }
  plan_ = hints_->Plan();
  if (plan_ == nullptr) hints_.reset();
  return true;
}

// As SequencePlan does it: when an iteration has ended.
bool StreamFollower::TakeSteadyPlan(LaunchIndex index) {
  if (plan_ == nullptr || steady_ || tracker_.sequence() == kNoSequence || index < tracker_.start())
    return false;
  const LaunchIndex followed = index + 1 - tracker_.start();
  const LaunchIndex launches = tracker_.IterationOf(planned_).end();
  if (followed % launches != 0 || followed / launches < kSteadyIterations) return false;
  const std::shared_ptr<const MigrationPlan> plan = PlanOf(planned_, true);
  if (plan == nullptr ||
      planners_[{planned_, true}]->forecast().iteration >= planners_[{planned_, false}]->forecast().iteration)
    return false;
  steady_ = true;
  plan_ = plan;
  return true;
}

std::shared_ptr<const MigrationPlan> StreamFollower::PlanOf(SequenceId sequence, bool steady) {
  std::unique_ptr<RuntimePlanner>& planner = planners_[{sequence, steady}];
  if (planner == nullptr) {
    const RuntimeMachine machine = steady ? WhenSteady(machine_) : machine_;
    const Trace& iteration = tracker_.IterationOf(sequence);
    planner = std::make_unique<RuntimePlanner>(
        MakeRecordedWorkload(iteration, 0, static_cast<uint32_t>(iteration.end()), stream_.sizes, &times_,
                             &stream_.facts),
        machine);
    while (planner->Improve()) {
    }
  }
  if (planner->Plan() == nullptr) return nullptr;
  auto plan = std::make_shared<MigrationPlan>(*planner->Plan());
  plan->start = tracker_.start();
  return plan;
}

}  // namespace spillway::policy
