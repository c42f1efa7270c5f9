// DueParts: the requests of a plan at each kernel of an iteration, part by part: copies out that may start
// once the kernel has ended, and GPU copies to drop then. Made once per execution. ExpectedBytes and
// AwayBytes are the bytes that the same plan has on the GPU and away from it at each kernel. Distances are in
// kernels. Pure; nothing fails.

#ifndef SPILLWAY_POLICY_SIMULATOR_DUE_PARTS_H_
#define SPILLWAY_POLICY_SIMULATOR_DUE_PARTS_H_

#include <cstdint>
#include <vector>

#include "policy/model/lifetimes.h"
#include "policy/model/transfer_plan.h"
#include "policy/simulator/part_state.h"

namespace spillway::policy {

// A tensor that the plan has away when an iteration begins.
struct AwayAtStart {
  uint32_t tensor = 0;
  PlanTier tier = PlanTier::kHost;
  uint32_t until = 0;   // kernel of its next use, or before which it is freed
  bool returns = true;  // false: that use does not read it, or there is none
};

struct DueParts {
  std::vector<std::vector<DueWrite>> writes;  // by the kernel that made the content
  std::vector<std::vector<DueDrop>> drops;    // by the kernel of the last use
  std::vector<DueWrite> first_writes;         // at the very start; the iteration before would have made them
  std::vector<AwayAtStart> away_at_start;
};

// The pieces of each tensor at which the plan's evictions begin and end.
std::vector<std::vector<uint32_t>> CutsOf(const Workload& workload, const Lifetimes& lifetimes,
                                          const TransferPlan& plan);

// `state`: its parts are cut at CutsOf the plan.
DueParts MakeDueParts(const Workload& workload, const Lifetimes& lifetimes, const TransferPlan& plan,
                      const PartState& state);

// Bytes that the plan's evictions have away from the GPU at each kernel of an iteration that repeats; if
// `host_only`, those in host memory. `piece_bytes` as in Machine.
std::vector<int64_t> AwayBytes(const Workload& workload, const Lifetimes& lifetimes, Bytes piece_bytes,
                               const TransferPlan& plan, bool host_only);

// Bytes on the GPU at each kernel of an iteration that repeats, evictions taken as away.
std::vector<int64_t> ExpectedBytes(const Workload& workload, const Lifetimes& lifetimes, Bytes piece_bytes,
                                   const TransferPlan& plan);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_DUE_PARTS_H_
