// FindWindowBound: the bytes that stretches of an iteration must move while they run. If the kernels of a
// stretch read more than fits the GPU, the rest comes in during the stretch, however early the plan begins.
// If they make more that is read later than fits the GPU, the rest goes out. The optimizer's update is such a
// stretch. Part of the quick bound. Pure; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_BOUND_WINDOW_BOUND_H_
#define SPILLWAY_POLICY_BOUND_WINDOW_BOUND_H_

#include <vector>

#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/workload.h"

namespace spillway::policy {

// The link between the kernels' side and all memory that is farther away.
struct WindowLink {
  Bytes inner_bytes = 0;            // may be on the kernels' side at any time
  std::vector<SharedLimit> limits;  // limits on the time of moving, each valid by itself
};

// Returns a time of an iteration that no plan can beat. The iteration is cut into stretches, in the best way,
// and each lasts as long as its kernels, and as long as the bytes that it must move over any of the links.
// `lifetimes` are those of all tensors (least_bytes 0). Cuts lie at every kernel, or at 256 of them if there
// are more. Time: linear in cuts x idle intervals.
Nanos FindWindowBound(const Workload& workload, const Lifetimes& lifetimes,
                      const std::vector<WindowLink>& links);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_BOUND_WINDOW_BOUND_H_
