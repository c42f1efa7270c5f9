// WindowBound: what stretches of an iteration must move while they run. Where the kernels of a stretch read more
// than the GPU holds, the rest comes in during the stretch, however early the plan begins; where they make more
// that is read later than the GPU holds, the rest goes out. The optimizer's update is such a stretch. Part of
// the quick bound. Pure; nothing fails.

#ifndef SPILLWAY_POLICY_BOUND_WINDOW_BOUND_H_
#define SPILLWAY_POLICY_BOUND_WINDOW_BOUND_H_

#include <vector>

#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/workload.h"

namespace spillway::policy {

// What lies between the kernels and all that is farther away.
struct WindowLink {
  Bytes inner_bytes = 0;            // that may be on the kernels' side at any time
  std::vector<SharedLimit> limits;  // what moving takes at least: each of them holds
};

// A time of an iteration that no plan can beat: the iteration is cut into stretches, as is best, and each lasts
// as long as its kernels, and as long as what it must move over any of the links. `lifetimes` of all tensors
// (least_bytes 0). Cuts lie at every kernel, at 256 of them at most. Time: linear in cuts x idle intervals.
Nanos FindWindowBound(const Workload& workload, const Lifetimes& lifetimes,
                      const std::vector<WindowLink>& links);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_BOUND_WINDOW_BOUND_H_
