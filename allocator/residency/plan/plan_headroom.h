// PlanRoom: what a plan expects to lie on the GPU during the launches to come, together with what was brought ahead of
// it. Answers whether a block may be there from now until it is needed without taking room that the plan has promised.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_HEADROOM_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_HEADROOM_H_

#include <memory>
#include <vector>

#include "policy/plan.h"
#include "policy/range_max.h"
#include "policy/units.h"

namespace spillway::allocator {

// One thread. Launches are named by their index since the start of the job.
class PlanRoom {
 public:
  // Null, or a plan that expects nothing: everything fits from now on.
  void Reset(std::shared_ptr<const policy::MigrationPlan> plan, policy::LaunchIndex now);
  bool known() const { return room_ != nullptr; }
  // The GPU has come to launch `now`: what lies behind is forgotten.
  void MoveTo(policy::LaunchIndex now);
  // Whether `bytes` more fit during every launch of [begin, end).
  bool Fits(policy::LaunchIndex begin, policy::LaunchIndex end, policy::Bytes bytes) const;
  // There are more bytes during [begin, end) than the plan expects, or fewer.
  void Add(policy::LaunchIndex begin, policy::LaunchIndex end, int64_t bytes);

 private:
  struct Change {
    policy::LaunchIndex begin, end;
    int64_t bytes;
  };
  static constexpr uint32_t kPeriods = 3;  // that are looked at: a need lies less than two ahead

  void Build();
  void Apply(const Change& change);
  size_t PlaceOf(policy::LaunchIndex index) const;

  std::shared_ptr<const policy::MigrationPlan> plan_;
  policy::LaunchIndex base_ = 0;  // of the first launch in room_, at position 0
  std::unique_ptr<policy::RangeMax> room_;
  std::vector<Change> changes_;  // that are not over
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_HEADROOM_H_
