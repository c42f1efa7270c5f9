// ExecutionTables: what a plan asks for at each kernel of an iteration, part by part: copies out that may start once the
// kernel has ended, GPU copies to drop then. Distances are in kernels. Built once per execution.

#ifndef SPILLWAY_POLICY_SIMULATOR_DUE_PARTS_H_
#define SPILLWAY_POLICY_SIMULATOR_DUE_PARTS_H_

#include <cstdint>
#include <vector>

#include "policy/simulator/part_state.h"

namespace spillway::policy {

struct DueWrite {
  uint32_t part = 0;
  PlanTier tier = PlanTier::kHost;
  uint32_t needed = 0;   // kernels until the last use before the first absence: the order of the lane
  uint32_t expires = 0;  // kernels until no absence needs it any more
};

struct DueDrop {
  uint32_t part = 0;
  PlanTier tier = PlanTier::kHost;
  uint32_t counted_from = 0;  // kernels until the plan counts on the room
  uint32_t away = 0;          // kernels until the next use
  bool keep_copy = false;
  bool returns = true;
  Nanos read_lead = -1;
};

// A tensor that the plan has away when an iteration begins.
struct AwayAtStart {
  uint32_t tensor = 0;
  PlanTier tier = PlanTier::kHost;
  uint32_t until = 0;   // kernel of its next use, or before which it is freed
  bool returns = true;  // false: that use does not read it, or there is none
};

struct ExecutionTables {
  std::vector<std::vector<DueWrite>> writes;  // by the kernel that made the content
  std::vector<std::vector<DueDrop>> drops;    // by the kernel of the last use
  std::vector<DueWrite>
      first_writes;  // at the very start, of content that the iteration before would have written
  std::vector<AwayAtStart> away_at_start;
};

ExecutionTables MakeExecutionTables(const Workload& workload, const Lifetimes& lifetimes,
                                    const Machine& machine, const TransferPlan& plan,
                                    const ExecutionState& state);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_DUE_PARTS_H_
