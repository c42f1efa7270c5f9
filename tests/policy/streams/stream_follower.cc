#include "tests/policy/streams/stream_follower.h"

#include <algorithm>

#include "policy/planner/recorded_workload.h"

namespace spillway::policy {

StreamFollower::StreamFollower(const Stream& stream, const Machine& machine, LaunchIndex run_ahead,
                               Nanos launch)
    : stream_(stream), tracker_(IterationOptions()) {
  machine_.machine = machine;
  machine_.run_ahead_launches = static_cast<uint32_t>(run_ahead - 1);
  times_.Add({/*own=*/1}, launch);
}

bool StreamFollower::Add(LaunchIndex index) {
  tracker_.Add(stream_.trace, index, std::ranges::binary_search(stream_.marks, index));
  if (tracker_.version() != settled_version_) {
    settled_version_ = tracker_.version();
    if (tracker_.sequence() != kNoSequence) {
      planned_ = tracker_.sequence();
      plan_ = PlanOf(planned_);
      hints_.reset();
      return true;
    }
    if (plan_ == nullptr) return false;
    hints_.emplace(tracker_.IterationOf(planned_), *plan_);
    hints_->Follow(index, stream_.trace.at(index));
  } else if (!hints_ || !hints_->Follow(index, stream_.trace.at(index))) {
    return false;
  }
  plan_ = hints_->Plan();
  if (plan_ == nullptr) hints_.reset();
  return true;
}

std::shared_ptr<const MigrationPlan> StreamFollower::PlanOf(SequenceId sequence) {
  std::unique_ptr<RuntimePlanner>& planner = planners_[sequence];
  if (planner == nullptr) {
    const Trace& iteration = tracker_.IterationOf(sequence);
    planner = std::make_unique<RuntimePlanner>(
        MakeRecordedWorkload(iteration, 0, static_cast<uint32_t>(iteration.end()), stream_.sizes, &times_,
                             &stream_.facts),
        machine_);
    while (planner->Improve()) {
    }
  }
  if (planner->Plan() == nullptr) return nullptr;
  auto plan = std::make_shared<MigrationPlan>(*planner->Plan());
  plan->start = tracker_.start();
  return plan;
}

}  // namespace spillway::policy
