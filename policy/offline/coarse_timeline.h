// CoarseTimeline: an LpTimeline of few slots, for a linear programme that is solved in a second. What it
// loses only helps plans: memory must suffice at the points that are left alone, bytes may flow from the
// point before their interval to the point behind it, and tensors that are then used alike become one. So a
// bound by it holds for the iteration as it is. For FindCoarseBound. Data only; nothing fails.

#ifndef SPILLWAY_POLICY_OFFLINE_COARSE_TIMELINE_H_
#define SPILLWAY_POLICY_OFFLINE_COARSE_TIMELINE_H_

#include <cstdint>

#include "policy/offline/lp_timeline.h"

namespace spillway::policy {

// At most `most_slots` slots, 2 at least: as many points, of which more lie where kernels last long, tensors
// come and go, and most bytes must be away. Intervals are by version, then place; their `interval` is one of
// those that were joined. `timeline` as it is where it has no more.
LpTimeline CoarseTimeline(const LpTimeline& timeline, uint32_t most_slots);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_COARSE_TIMELINE_H_
