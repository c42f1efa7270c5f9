// The functions of lp_solve.h in a build without CLP.

#include "policy/offline/lp_solve.h"

namespace spillway::policy {

absl::Status CheckLpSolver() {
  return absl::UnimplementedError("the LP is not available: this build has no CLP");
}

absl::StatusOr<LpSolution> SolveLp(const LpProblem&) { return CheckLpSolver(); }

}  // namespace spillway::policy
