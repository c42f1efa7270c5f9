// Planner, first form: given a period that repeats, what leaves the GPU after which launch and comes back
// ahead of which. Belady's choice (farthest next use) over the steady cycle, returns as early as room allows.
// Takes no time for transfers into account; the runner throttles by what is really free.

#ifndef SPILLWAY_POLICY_PLANNER_H_
#define SPILLWAY_POLICY_PLANNER_H_

#include <memory>
#include <unordered_map>

#include "policy/plan.h"
#include "policy/trace.h"
#include "policy/units.h"

namespace spillway::policy {

struct PlannerOptions {
  Bytes budget_bytes =
      0;                 // for resident blocks; the caller leaves out what others hold and what is kept free
  Bytes host_bytes = 0;  // room of the host tier; what does not fit goes to disk, longest absences first
  Bytes run_ahead_bytes = 0;   // bytes that uncompleted launches may touch: blocks are due that much earlier
  uint32_t transfer_launches = 0;  // launches that a transfer may take, out and in
  Bytes window_bytes = 0;  // fetched and not used yet, at most; 0: as the budget allows
};

// The period is the `period` launches of `trace` from `start` on. `sizes` has each block that they name, in
// whole chunks; one that it lacks is taken to need no room. A block that is freed and handed out again within
// the period holds nothing in between and comes back without a fetch. Null when a launch's own blocks exceed
// the budget. A plan without steps: everything fits.
std::shared_ptr<const MigrationPlan> MakePlan(const Trace& trace, LaunchIndex start, uint32_t period,
                                              const BlockSizes& sizes, const PlannerOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_H_
