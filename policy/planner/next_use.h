// Next uses within a period that repeats: for each launch and each block that it names, the place of the
// block's next use, which may lie in the period after.

#ifndef SPILLWAY_POLICY_PLANNER_NEXT_USE_H_
#define SPILLWAY_POLICY_PLANNER_NEXT_USE_H_

#include "policy/planner/plan.h"
#include "policy/trace/trace.h"

namespace spillway::policy {

// Fills start, period, launches and uses of a plan from the `period` launches of `trace` that begin at
// `start`. ExpectedUse::next_position counts from the period's own start: period..2*period-1 is the next one.
// No steps.
MigrationPlan ExpectPeriod(const Trace& trace, LaunchIndex start, uint32_t period);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_NEXT_USE_H_
