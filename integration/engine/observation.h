// Observation: what smaller budgets would make an observed job move each step, from the cycle that it repeats. For
// SPILLWAY=observe. A pure function, and its words for people.

#ifndef SPILLWAY_INTEGRATION_ENGINE_OBSERVATION_H_
#define SPILLWAY_INTEGRATION_ENGINE_OBSERVATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/residency/residency.h"
#include "policy/bound/iteration_uses.h"
#include "policy/bound/traffic_bound.h"

namespace spillway::integration {

struct ObservedBudget {
  int percent = 0;            // of the peak; 0: the budget that the user set
  uint64_t budget_bytes = 0;  // of the device: blocks and others' allocations
  policy::StepTraffic traffic;
};

struct ObservedStep {
  uint32_t launches = 0;  // 0: nothing repeated, and the rest is empty
  uint64_t peak_bytes = 0;
  uint64_t others_bytes = 0;  // of each budget, not for blocks
  uint64_t largest_set_bytes = 0;
  std::vector<ObservedBudget> budgets;
};

// At 30, 50 and 70 % of the device's peak, and at `set_bytes` if the user set one. `cycle` may be null.
ObservedStep ObserveStep(const policy::Cycle* cycle, const allocator::ResidencyStats& stats,
                         std::optional<uint64_t> set_bytes);

// Lines for people, without a prefix.
std::vector<std::string> ObservationLines(int device, const ObservedStep& step);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_OBSERVATION_H_
