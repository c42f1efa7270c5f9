// CoarseTimeline: an LpTimeline of few slots, for a linear program that is solved in a second. Every loss of
// detail only helps plans: memory must suffice at the remaining points, bytes may flow from the point before
// their interval to the point behind it, and tensors that are then used alike become one. A bound on it is
// therefore valid for the iteration as it is. For FindCoarseBound. Pure data; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_OFFLINE_COARSE_TIMELINE_H_
#define SPILLWAY_POLICY_OFFLINE_COARSE_TIMELINE_H_

#include <cstdint>

#include "policy/offline/lp_timeline.h"

namespace spillway::policy {

// Returns at most `most_slots` slots, 2 at least, with as many points. More points lie where kernels last
// long, tensors come and go, and most bytes must be away. Intervals are ordered by version, then place; their
// `interval` is one of those that were joined. Returns `timeline` as it is if it has no more slots.
LpTimeline CoarseTimeline(const LpTimeline& timeline, uint32_t most_slots);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_COARSE_TIMELINE_H_
