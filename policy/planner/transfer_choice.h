// ChooseTransfers: what leaves the GPU so that each kernel of a repeating iteration fits: farthest next use first among
// what the write lane has time for. Tiers are chosen afterwards (tier_choice).

#ifndef SPILLWAY_POLICY_PLANNER_TRANSFER_CHOICE_H_
#define SPILLWAY_POLICY_PLANNER_TRANSFER_CHOICE_H_

#include <vector>

#include "policy/simulator/transfer_plan.h"
#include "policy/trace/lifetimes.h"
#include "policy/trace/workload.h"

namespace spillway::policy {

struct ChoiceOptions {
  Bytes budget_bytes = 0;
  Bytes piece_bytes = 0;
  double write_rate = 0;     // of the lane that copies go out by, bytes per second
  bool write_ledger = true;  // false: the farthest next use leaves, whether its write can be in time or not
  bool early_writes = true;  // false: a write may begin only after the tensor's last use
  // More than 0: what the way back has time for at this rate goes first, bytes per second.
  double read_rate = 0;
  bool early_returns = false;  // and the room is given back when that way back begins, not at the next use
  // What moves in one direction only goes first: never written, or overwritten unread; as long as it is away for as long
  // as the room is needed.
  bool one_way_first = false;
};

// `kernel_times`: as the kernels of an iteration follow each other. Where nothing is left to take, the kernel stays over
// the budget. Time: kernels in need x candidates at worst.
std::vector<PlannedAbsence> ChooseTransfers(const Workload& workload, const Lifetimes& lifetimes,
                                            const std::vector<Nanos>& kernel_times,
                                            const ChoiceOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_TRANSFER_CHOICE_H_
