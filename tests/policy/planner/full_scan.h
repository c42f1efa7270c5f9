// SelectVictims: the specified choice of victims, by a scan of all candidates. policy::VictimIndex must equal
// it.

#ifndef SPILLWAY_TESTS_POLICY_PLANNER_FULL_SCAN_H_
#define SPILLWAY_TESTS_POLICY_PLANNER_FULL_SCAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "policy/model/units.h"

namespace spillway::policy {

struct VictimCandidate {
  uint64_t key = 0;  // the caller's name for it
  Bytes bytes = 0;
  LaunchIndex last_use = 0;
  LaunchIndex next_use = kNever;  // kNever: not known, or not in the plan
};

// Indices into `candidates`, in the order in which they should leave, until `bytes_needed` are together (all
// of them when they do not suffice). Blocks without a known next use leave first, least recently used before
// others; then those whose next use is farthest. Equal ones in the order given.
std::vector<uint32_t> SelectVictims(std::span<const VictimCandidate> candidates, Bytes bytes_needed);

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_PLANNER_FULL_SCAN_H_
