// PathPlan: the plan for one path of a job: made at once from the path's period, improved in slices of work, and handed out
// for wherever the path begins. Owns the planner and what it plans from; leaves when to plan to the predictor. One thread.

#ifndef SPILLWAY_INTEGRATION_HOOKS_PATH_PLAN_H_
#define SPILLWAY_INTEGRATION_HOOKS_PATH_PLAN_H_

#include <cstdint>
#include <memory>

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
  // To be asked whenever the path is entered or gone through again: whether it is time to ask OutOfDate, less and less
  // often.
  bool DueForALook() {
    ++turns_;
    return (turns_ & (turns_ - 1)) == 0 || turns_ % kTurnsBetweenLooks == 0;
  }
  // As often as for the plan that this one replaces.
  void GoOnFrom(const PathPlan& before) { turns_ = before.turns_; }
  // What it was made for has changed so much that it should be made anew: room, rates, kernel times, or writes. Walks the
  // period: for now and then.
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

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_PATH_PLAN_H_
