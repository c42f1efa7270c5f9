// ChooseByBenefit: the greedy choice of G10 and TERAIO (`--policy g10`), for comparison with the planner's.
// Pure; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_OFFLINE_BENEFIT_CHOICE_H_
#define SPILLWAY_POLICY_OFFLINE_BENEFIT_CHOICE_H_

#include <vector>

#include "policy/planner/transfer_choice.h"

namespace spillway::policy {

// Takes the idle interval first that relieves overfull kernels most per byte that moves, until no kernel is
// overfull. Tensors move whole, and are written after their last use. All go to the host. `kernel_times`: of
// the kernels of an iteration, in order.
std::vector<PlannedEviction> ChooseByBenefit(const Workload& workload, const Lifetimes& lifetimes,
                                             const std::vector<Nanos>& kernel_times,
                                             const ChoiceOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_BENEFIT_CHOICE_H_
