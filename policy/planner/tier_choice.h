// ChooseTiers chooses the planned evictions that go to the SSD because the host's memory does not take all.
// FindReadLeads finds the latest time at which each way back from the host must begin. Steps of PlanSearch,
// after transfer_choice. Pure; nothing fails.

#ifndef SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_
#define SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_

#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/transfer_plan.h"
#include "policy/model/workload.h"

namespace spillway::policy {

// The order in which evictions are moved to the SSD. The best one differs by workload, so all are tried.
enum class TierOrder { kNearestFirst, kSpread, kFarthestFirst };

// Sets the tiers of plan->evictions. No more bytes go to the SSD than host memory makes necessary; where
// possible their reads and writes fit the SSD's rates. Uses plan->kernel_times.
void ChooseTiers(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                 TierOrder order, TransferPlan* plan);

// Sets each eviction's read_lead: the time before the start of its next use at which its read from the host
// has to begin, so that it and all later reads are in time by plan->kernel_times. 0 for evictions to the SSD.
void FindReadLeads(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                   TransferPlan* plan);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_TIER_CHOICE_H_
