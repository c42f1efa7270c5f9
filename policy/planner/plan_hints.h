// PlanHints: the part of a plan that is still of use after the job has departed from it. An iteration does
// mostly the same with its persistent blocks (weights, optimizer states) in any of its forms. They are
// therefore fetched and copied out as the plan says, while blocks leave as without a plan. The launches that
// follow show the job's place in the plan. The predictor keeps one PlanHints from a departure until the job
// is on a known sequence again. One thread; nothing fails.

#ifndef SPILLWAY_POLICY_PLANNER_PLAN_HINTS_H_
#define SPILLWAY_POLICY_PLANNER_PLAN_HINTS_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "policy/model/plan.h"
#include "policy/trace/trace.h"

namespace spillway::policy {

class PlanHints {
 public:
  // `iteration`: the launches of the plan's iteration, as a trace that begins with launch 0.
  PlanHints(const Trace& iteration, const MigrationPlan& plan);

  // The plan's fetches and copies out of persistent blocks, with MigrationPlan::hints set; null once the job
  // has been too long without a launch of the plan. Copies the plan after its place has moved.
  std::shared_ptr<const MigrationPlan> Plan();

  // Follows the job's next launch: the place in the plan moves to the nearest launch with the same function
  // and the same persistent blocks. A quarter of an iteration without such a launch ends the hints. True when
  // Plan() has changed.
  bool Follow(LaunchIndex index, const LaunchRecord& launch);

 private:
  uint64_t PlaceOf(const LaunchRecord& launch) const;
  uint32_t Nearest(const std::vector<uint32_t>& positions, uint32_t expected) const;

  std::unordered_set<TraceBlock> persistent_;  // neither allocated nor freed in the iteration
  // Positions, ascending, by a signature of the function and of the persistent blocks.
  std::unordered_map<uint64_t, std::vector<uint32_t>> positions_;
  std::shared_ptr<const MigrationPlan> plan_;
  LaunchIndex start_ = 0;  // that Plan() is to have
  uint32_t strange_ = 0;   // launches in a row that the plan does not have
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_PLAN_HINTS_H_
