// TrafficOf: how many bytes a budget makes a repeating job move: a lower bound that no schedule beats, and
// the traffic of plain farthest-next-use on whole blocks. For the report of an observed job. It knows bytes
// and order only: no rates, no tiers, no clean copies. Pure; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_BOUND_TRAFFIC_BOUND_H_
#define SPILLWAY_POLICY_BOUND_TRAFFIC_BOUND_H_

#include "policy/bound/iteration_uses.h"
#include "policy/model/units.h"

namespace spillway::policy {

struct IterationTraffic {
  bool possible = false;  // false: one launch alone names more than the budget; the rest is 0
  // Bytes that must be copied back to the GPU each iteration, in the long-run average, whatever the schedule,
  // even one that moves parts of blocks and knows the future. Bytes that come back had to leave: as many go
  // out if the blocks were changed since they were last away.
  Bytes least_fetched_bytes = 0;
  // Bytes that come back each iteration if whole blocks leave, farthest next use first.
  Bytes whole_block_fetched_bytes = 0;
};

// `budget_bytes`: for the blocks of the iteration. Time: a few walks over the iteration's uses.
IterationTraffic TrafficOf(const IterationUses& iteration, Bytes budget_bytes);

// Returns the bytes of the largest set of blocks that one launch of the iteration names.
Bytes LargestSetOf(const IterationUses& iteration);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_BOUND_TRAFFIC_BOUND_H_
