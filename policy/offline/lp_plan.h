// PlanByLp: the LP's solution rounded to whole pieces, as a plan for the simulator (`--policy lp`). For
// comparison with the planner, which needs milliseconds for what takes seconds here. Thread-safe; each call
// works alone. Fails as FindLpBound does.

#ifndef SPILLWAY_POLICY_OFFLINE_LP_PLAN_H_
#define SPILLWAY_POLICY_OFFLINE_LP_PLAN_H_

#include "absl/status/statusor.h"
#include "policy/model/transfer_plan.h"
#include "policy/offline/lp_bound.h"

namespace spillway::policy {

// The LP chooses which bytes are away (one tier per interval, a margin of the GPU's memory kept free); the
// order of their last uses decides when they are written. Tries three leads for reads from the host by
// executing the plan, and keeps the best. Errors are FindLpBound's and Execute's.
absl::StatusOr<TransferPlan> PlanByLp(const Workload& workload, const Lifetimes& lifetimes,
                                      const Machine& machine);

// Only rounds a solution.
TransferPlan RoundLp(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                     const LpBound& solution);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_LP_PLAN_H_
