// FindLpBound: the time of a steady iteration that no plan beats, by a linear program over all plans that
// move bytes as a fluid. For `spillway simulate --bound lp` and PlanByLp. Takes seconds for a thousand
// kernels. Thread-safe; each call works alone. Fails if a kernel does not fit the GPU, the solver fails, or
// the build has none. docs/planner.md, heading "Bounds".

#ifndef SPILLWAY_POLICY_OFFLINE_LP_BOUND_H_
#define SPILLWAY_POLICY_OFFLINE_LP_BOUND_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/offline/lp_model.h"

namespace spillway::policy {

enum class LpForm {
  kAnyPlan,  // spilled bytes may change their tier at any time
  // Each byte of a content has one tier and is written once: a bound only for plans that keep to that.
  kKeepTier,
};

enum class LpAim {
  kBound,
  kFewBytes,  // moves least among solutions of nearly the least waiting: to be rounded, no bound
};

// The bytes of a tensor that the solution has away in one idle interval, by tier. If tiers may change, all
// count as the host's.
struct LpEviction {
  uint32_t interval = 0;  // index into Lifetimes::intervals
  double host_bytes = 0, ssd_bytes = 0;
};

struct LpBound {
  // The LP's value less a millionth of the kernels, for the solver's tolerance; the quick bound if that is
  // more.
  Nanos iteration = 0;
  std::vector<Nanos> gaps;            // before each kernel, in the solution
  std::vector<LpEviction> evictions;  // of the intervals that have any
  uint32_t columns = 0, rows = 0;     // of the last LP that was solved; 0: everything fits
};

// Valid for all plans if `lifetimes` are those of all tensors, or of those of any least size (smaller tensors
// then count as 0 bytes while idle). ResourceExhausted: a kernel's own tensors exceed the GPU's memory.
// Internal: the solver failed. Unimplemented: the build has no solver.
absl::StatusOr<LpBound> FindLpBound(const Workload& workload, const Lifetimes& lifetimes,
                                    const Machine& machine, LpForm form, LpAim aim = LpAim::kBound);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_LP_BOUND_H_
