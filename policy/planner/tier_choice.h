// ChooseTiers: which planned evictions go to the SSD because the host's memory does not take all.
// FindReadLeads: when the way back from the host must begin at the latest. Steps of PlanSearch, after
// transfer_choice. Pure; nothing fails.

#ifndef SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_
#define SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_

#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/transfer_plan.h"
#include "policy/model/workload.h"

namespace spillway::policy {

// What goes to the SSD first. Which is best differs by workload; all are tried.
enum class TierOrder { kNearestFirst, kSpread, kFarthestFirst };

// Sets the tiers of plan->evictions. No more bytes go to the SSD than host memory makes necessary; where
// possible their reads and writes fit the SSD's rates. Uses plan->kernel_times.
void ChooseTiers(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                 TierOrder order, TransferPlan* plan);

// Sets each eviction's read_lead: how long before the start of its next use its read from the host has to
// begin, so that it and all that come after it are in time by plan->kernel_times. 0 for those on the SSD.
void FindReadLeads(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                   TransferPlan* plan);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_
