// ChooseTiers: which planned absences go to the SSD because the host's memory does not hold all, and when the way back
// from the host must begin at the latest.

#ifndef SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_
#define SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_

#include "policy/simulator/machine.h"
#include "policy/simulator/transfer_plan.h"
#include "policy/trace/lifetimes.h"
#include "policy/trace/workload.h"

namespace spillway::policy {

// What goes to the SSD first. Which is best differs by workload; all are tried.
enum class TierOrder { kNearestFirst, kSpread, kFarthestFirst };

// Sets the tiers of plan->absences: no more bytes go to the SSD than host memory makes necessary, and where it can be
// had, their reads and writes fit its speed. Uses plan->kernel_times.
void ChooseTiers(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                 TierOrder order, TransferPlan* plan);

// Sets each absence's read_lead: how long before the start of its next use its read from the host has to begin, so that it
// and all that come after it are in time on the plan's times. 0 for those on the SSD.
void FindReadLeads(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                   TransferPlan* plan);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_
