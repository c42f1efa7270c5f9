// A plan without ops, for tests that look at where the GPU is and how far the host may be ahead. Nothing
// moves by it: it says only how long each launch takes.

#ifndef SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_PLAN_PLAN_OF_H_
#define SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_PLAN_PLAN_OF_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/model/plan.h"
#include "policy/model/units.h"

namespace spillway::allocator {

// An iteration of launches that take so long each; its first has index `start`.
inline std::shared_ptr<policy::MigrationPlan> PlanOf(const std::vector<policy::Nanos>& durations,
                                                     policy::LaunchIndex start) {
  auto plan = std::make_shared<policy::MigrationPlan>();
  plan->start = start;
  plan->iteration_launches = static_cast<uint32_t>(durations.size());
  plan->durations = durations;
  plan->launches.resize(plan->iteration_launches);
  return plan;
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_PLAN_PLAN_OF_H_
