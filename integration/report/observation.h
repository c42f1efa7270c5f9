// Observation, for SPILLWAY=observe: the bytes that smaller budgets would make a job move in each iteration.
// It is computed from one iteration's uses of blocks; no byte is moved. MetricsOf asks for it whenever
// metrics are collected; the reporter prints the lines at the end. Pure functions: thread-safe, no call
// fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_OBSERVATION_H_
#define SPILLWAY_INTEGRATION_REPORT_OBSERVATION_H_

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
  uint64_t budget_bytes = 0;  // of the device: blocks and external memory
  policy::IterationTraffic traffic;
};

struct ObservedIteration {
  uint32_t launches = 0;           // 0: nothing repeated, and the rest is empty
  uint64_t peak_bytes = 0;         // of all driver allocations on the device
  uint64_t external_bytes = 0;     // part of each budget that is not for blocks
  uint64_t largest_set_bytes = 0;  // of the blocks that one launch names
  std::vector<ObservedBudget> budgets;
};

// Computes the traffic with budgets of 30, 50 and 70 % of the device's peak, and of `set_bytes` if the user
// set a budget. `uses` is null if nothing repeats yet.
ObservedIteration ObserveIteration(const policy::IterationUses* uses, const allocator::ResidencyStats& stats,
                                   std::optional<uint64_t> set_bytes);

// Returns lines for people, without a prefix: one about the iteration, and one for each budget.
std::vector<std::string> ObservationLines(int device, const ObservedIteration& iteration);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_OBSERVATION_H_
