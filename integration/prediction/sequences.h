// What the predictor keeps of the sequences that a job repeats: PathPlan, the plan of one, and
// FollowedPeriod, the one that was followed for the most launches. One thread, the predictor's; a sequence
// that cannot be planned has no plan, and nothing else fails. Which sequence the job is on is policy's to
// find.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_SEQUENCES_H_
#define SPILLWAY_INTEGRATION_PREDICTION_SEQUENCES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/planner/plan.h"
#include "policy/planner/runtime_planner.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/trace.h"
#include "policy/trace/units.h"
#include "policy/trace/write_facts.h"

namespace spillway::integration {

// What was learnt of the job's launches; either may be null.
struct LearntFacts {
  const policy::KernelTimes* times = nullptr;
  const policy::WriteFacts* writes = nullptr;
};

// The plan for one sequence: made at once, improved in slices of work, and handed out for wherever the
// sequence begins. Owns the planner and what it plans from; leaves when to plan to the predictor.
class PathPlan {
 public:
  // `period` begins with launch 0. Plans: CPU time of about 100 ms for 5,000 launches.
  PathPlan(const policy::Trace& period, const policy::BlockSizes& sizes,
           const policy::RuntimeMachine& machine, const LearntFacts& facts);

  // The best plan so far for position 0 at launch `start`; null when there can be none.
  std::shared_ptr<const policy::MigrationPlan> From(policy::LaunchIndex start);
  // A better one has been found since From.
  bool HasBetter() const { return planner_->Plan() != handed_out_; }
  // One slice of work on better ones. False when there is nothing left to try.
  bool Improve();

  // The memory to plan for is not what it was.
  bool RoomChanged(const policy::RuntimeMachine& machine) const;
  // To be asked whenever the path is entered or gone through again: whether it is time to ask OutOfDate, less
  // and less often.
  bool DueForALook() {
    ++turns_;
    return (turns_ & (turns_ - 1)) == 0 || turns_ % kTurnsBetweenLooks == 0;
  }
  // As often as for the plan that this one replaces.
  void GoOnFrom(const PathPlan& before) { turns_ = before.turns_; }
  // What it was made for has changed so much that it should be made anew: room, rates, kernel times, or
  // writes. Walks the period: for now and then.
  bool OutOfDate(const policy::Trace& period, const policy::BlockSizes& sizes,
                 const policy::RuntimeMachine& machine, const LearntFacts& facts) const;
  policy::Forecast forecast() const { return planner_->forecast(); }

 private:
  const policy::RuntimeMachine machine_;
  policy::Nanos ideal_ = 0;  // all launches, as measured then
  uint64_t writes_version_ = 0;
  std::unique_ptr<policy::RuntimePlanner> planner_;
  std::shared_ptr<const policy::MigrationPlan> handed_out_;
  bool more_ = true;
  static constexpr uint64_t kTurnsBetweenLooks = 32;
  uint64_t turns_ = 0;
};

// The iteration that a job followed for the most launches, with what happened in it, kept for the end. Makes
// no plans. policy::PathTracker cannot give it: that keeps each sequence as it was when it was first seen,
// which in a job's first iterations hands out blocks that later ones do not, and forgets sequences that
// others crowd out.
class FollowedPeriod {
 public:
  // The job repeats `period` launches at the end of `trace`; 0: none that is known. To be called as the trace
  // grows.
  void Note(const policy::Trace& trace, uint32_t period);

  struct Step {
    policy::Trace trace;  // one period and no more
    uint32_t period = 0;
    uint64_t launches = 0;  // for which a period of this length was followed
  };
  // Null when nothing repeated.
  const Step* Most() const;

  static constexpr size_t kMostSteps = 4;  // kept: lengths that were followed for longest

 private:
  Step* Of(uint32_t period);
  static bool Repeats(const policy::Trace& trace, uint32_t period);

  std::vector<Step> steps_;
  uint32_t period_ = 0;               // as it was told last
  policy::LaunchIndex noted_to_ = 0;  // end of the trace then
  uint64_t copied_at_ = 0;            // launches of the step in hand when it was copied last
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_SEQUENCES_H_
