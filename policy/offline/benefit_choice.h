// ChooseByBenefit: the greedy choice of G10 and TERAIO, for comparison with the planner's. Pure; nothing fails.

#ifndef SPILLWAY_POLICY_OFFLINE_BENEFIT_CHOICE_H_
#define SPILLWAY_POLICY_OFFLINE_BENEFIT_CHOICE_H_

#include <vector>

#include "policy/planner/transfer_choice.h"

namespace spillway::policy {

// The interval with the most relief of overfull kernels per byte that it
// moves goes first; whole intervals, written after the last use, until nothing is overfull.
std::vector<PlannedAbsence> ChooseByBenefit(const Workload& workload, const Lifetimes& lifetimes,
                                            const std::vector<Nanos>& kernel_times,
                                            const ChoiceOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_BENEFIT_CHOICE_H_
