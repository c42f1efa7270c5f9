// ChooseTransfers chooses the parts of tensors that leave the GPU so that each kernel of a repeating
// iteration fits: farthest next use first, among those that the copy queue out has time for. It is the first
// step of PlanSearch; tier_choice chooses the tiers afterwards. Pure; nothing fails: a kernel that cannot fit
// stays over the budget.

#ifndef SPILLWAY_POLICY_PLANNER_TRANSFER_CHOICE_H_
#define SPILLWAY_POLICY_PLANNER_TRANSFER_CHOICE_H_

#include <vector>

#include "policy/model/lifetimes.h"
#include "policy/model/transfer_plan.h"
#include "policy/model/workload.h"

namespace spillway::policy {

struct ChoiceOptions {
  Bytes budget_bytes = 0;
  Bytes piece_bytes = 0;
  double write_rate = 0;     // of the copy queue out, bytes per second
  bool write_ledger = true;  // false: the farthest next use leaves, whether or not its write can be in time
  bool early_writes = true;  // false: a write may begin only after the tensor's last use
  // More than 0: tensors that have time to come back at this rate, in bytes per second, leave first.
  double read_rate = 0;
  // Used with a read_rate: the memory counts as taken from the start of the way back, not from the next use.
  bool early_returns = false;
  // Tensors that move in one direction only (never written, or overwritten unread) leave first, if they stay
  // away for as long as the memory is needed.
  bool one_way_first = false;
};

// The parts that leave, with the idle intervals for which they are away; all go to the host. `kernel_times`:
// of the kernels of an iteration, in order. Time: kernels in need x candidates at worst.
std::vector<PlannedEviction> ChooseTransfers(const Workload& workload, const Lifetimes& lifetimes,
                                             const std::vector<Nanos>& kernel_times,
                                             const ChoiceOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_TRANSFER_CHOICE_H_
