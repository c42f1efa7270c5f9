// FindLowerBound: a value that no solution of a linear program goes below, found without a solver. Any prices
// of the rows give one, as long as each column has a least and a greatest value: prices that are not the best
// make it lower, never wrong. For FindCoarseBound, in builds without CLP, too. Pure; thread-safe; no call
// fails.

#ifndef SPILLWAY_POLICY_OFFLINE_LP_LOWER_BOUND_H_
#define SPILLWAY_POLICY_OFFLINE_LP_LOWER_BOUND_H_

#include <cstdint>

#include "policy/offline/lp_solve.h"

namespace spillway::policy {

// All values in the unit of the problem's costs.
struct LowerBoundOptions {
  double enough = 0;  // the search ends at a bound of this value
  double near = 0;    // ... and when bound and solution are no farther apart
  uint64_t work = 0;  // multiplications, at most
};

struct LowerBound {
  double value = 0;
  bool is_near = false;  // the search ended by `enough` or `near`; otherwise its work was spent
  uint64_t work = 0;     // multiplications that were made
};

// Takes a problem whose columns all have finite bounds and whose rows have one at least. Time: 1 to 2 ns for
// each multiplication; a round takes two for each entry of the matrix, and some ten thousand rounds are
// usual. The same input gives the same bits.
//
// The method is the primal-dual hybrid gradient of Chambolle and Pock (2011) with the additions of PDLP for
// linear programs (Applegate et al., arXiv 2106.04756): averages, restarts, balanced strides, and scaling by
// Ruiz (2001).
LowerBound FindLowerBound(const LpProblem& problem, const LowerBoundOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_LP_LOWER_BOUND_H_
