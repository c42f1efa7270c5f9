// StreamFollower: what the predictor does, without its thread: finds the sequence that the job of a stream is
// on, and has a plan for it from the same launch on. For replays.

#ifndef SPILLWAY_TESTS_POLICY_STREAMS_STREAM_FOLLOWER_H_
#define SPILLWAY_TESTS_POLICY_STREAMS_STREAM_FOLLOWER_H_

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "policy/model/plan.h"
#include "policy/planner/plan_hints.h"
#include "policy/planner/runtime_planner.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/sequence_tracker.h"
#include "tests/policy/streams/stream.h"

namespace spillway::policy {

class StreamFollower {
 public:
  // The stream must outlive it. `launch`: the time of each on the GPU.
  StreamFollower(const Stream& stream, const Machine& machine, Nanos launch);

  // The host has made launch `index`. True when another plan is in force from now on.
  bool Add(LaunchIndex index);
  // Null: none. After a departure: its hints.
  std::shared_ptr<const MigrationPlan> plan() const { return plan_; }
  const SequenceCounts& counts() const { return tracker_.counts(); }

 private:
  std::shared_ptr<const MigrationPlan> PlanOf(SequenceId sequence, bool steady);
  bool TakeSteadyPlan(LaunchIndex index);

  const Stream& stream_;
  RuntimeMachine machine_;
  KernelTimes times_;
  SequenceTracker tracker_;
  uint64_t settled_version_ = 0;
  std::map<std::pair<SequenceId, bool>, std::unique_ptr<RuntimePlanner>> planners_;  // the latter: steady
  bool steady_ = false;                                                              // the plan in force is
  std::shared_ptr<const MigrationPlan> plan_;
  SequenceId planned_ = kNoSequence;  // whose plan that is, or the hints'
  std::optional<PlanHints> hints_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_STREAMS_STREAM_FOLLOWER_H_
