// FindCoarseBound: the LP's bound (lp_bound.h) on a coarsened iteration, for reports: in a second or two and
// without a solver. It is valid for the plans of the LP's form. Pure; thread-safe; fails for a known time
// that is impossible. docs/planner.md, heading "Bounds".

#ifndef SPILLWAY_POLICY_OFFLINE_COARSE_BOUND_H_
#define SPILLWAY_POLICY_OFFLINE_COARSE_BOUND_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "policy/offline/lp_bound.h"

namespace spillway::policy {

struct CoarseBoundOptions {
  LpForm form = LpForm::kAnyPlan;
  // A time that some plan takes: no bound is above it, and the search ends if it is reached. The search
  // considers no longer waits than this plan's, so a shorter time makes it faster.
  Nanos known = 0;
  uint64_t work = 4'000'000'000;  // multiplications, at most: a few seconds of processor time
};

struct CoarseBound {
  Nanos iteration = 0;  // no plan is faster; the quick bound at least
  // Whether it lies within a hundredth of the LP's, as far as can be seen: the finest slots raised it by less
  // than that, or a plan takes no longer. False: the work was spent before, or the finest slots that are
  // tried raised it by more.
  bool is_near = false;
  uint32_t slots = 0;  // of the last timeline; 0: it took none
};

// Returns InvalidArgument if `known` is less than the kernels take. `lifetimes` as for FindLpBound. If a
// kernel does not fit the GPU, no plan has a time, so there is no `known` either.
absl::StatusOr<CoarseBound> FindCoarseBound(const Workload& workload, const Lifetimes& lifetimes,
                                            const Machine& machine, const CoarseBoundOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_COARSE_BOUND_H_
