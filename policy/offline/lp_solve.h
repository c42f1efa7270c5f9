// SolveLp: the solver behind the LP bound; the only place that knows it (COIN-OR CLP).

#ifndef SPILLWAY_POLICY_OFFLINE_LP_SOLVE_H_
#define SPILLWAY_POLICY_OFFLINE_LP_SOLVE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "policy/offline/lp_model.h"

namespace spillway::policy {

struct LpSolution {
  double objective = 0;
  std::vector<double> values;  // of the columns
};

// FailedPrecondition: no solution exists. Internal: the solver gave up. Prints nothing.
absl::StatusOr<LpSolution> SolveLp(const LpProblem& problem);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_LP_SOLVE_H_
