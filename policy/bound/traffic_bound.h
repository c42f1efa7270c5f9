// Bound: how many bytes a budget makes a repeating job move. A lower bound that no schedule beats, and what plain
// farthest-next-use on whole blocks would move. Knows bytes and order only: no speeds, no tiers, no clean copies.

#ifndef SPILLWAY_POLICY_BOUND_TRAFFIC_BOUND_H_
#define SPILLWAY_POLICY_BOUND_TRAFFIC_BOUND_H_

#include "policy/bound/iteration_uses.h"
#include "policy/trace/units.h"

namespace spillway::policy {

struct StepTraffic {
  bool possible = false;  // false: one launch alone names more than the budget; the rest is 0
  // Bytes that must come back to the GPU each period, on the long average, whatever the schedule: blocks may even be
  // moved in parts and every choice is made with full knowledge of what comes. What comes back had to leave, too,
  // so as many bytes go out wherever the blocks were changed since they were last away.
  Bytes least_fetched_bytes = 0;
  // What comes back each period when whole blocks leave, farthest next use first.
  Bytes whole_block_fetched_bytes = 0;
};

// `budget_bytes`: for the blocks of the cycle. `cycle` must not be widened (MakeCycle's default), or the bound is none.
// Time: a few walks over the cycle's uses.
StepTraffic TrafficOf(const Cycle& cycle, Bytes budget_bytes);

// The most that one launch of the cycle names.
Bytes LargestSetOf(const Cycle& cycle);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_BOUND_TRAFFIC_BOUND_H_
