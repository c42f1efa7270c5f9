// RandomPlan: a plan of one launch, over and over: of blocks of a job, some are dropped, some copied out,
// some fetched. So they leave and come back at any time.

#ifndef SPILLWAY_TESTS_SIMULATION_RANDOM_PLAN_H_
#define SPILLWAY_TESTS_SIMULATION_RANDOM_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/model/plan.h"
#include "tests/simulation/random.h"

namespace spillway::simulation {

// `blocks`: the raw ids, at least one. `start`: the launch from which the plan counts.
inline std::shared_ptr<const policy::MigrationPlan> RandomPlan(const std::vector<uint32_t>& blocks,
                                                               policy::LaunchIndex start, Random* random) {
  auto plan = std::make_shared<policy::MigrationPlan>();
  plan->start = start;
  plan->iteration_launches = 1;
  const uint32_t steps = 1 + random->Below(8);
  plan->hints = random->OneIn(4);
  for (uint32_t i = 0; i < steps; ++i) {
    policy::PlanOp op;
    const uint32_t kind = random->Below(6);
    op.kind = kind == 0   ? policy::PlanOpKind::kDrop
              : kind == 1 ? policy::PlanOpKind::kCopyOut
                          : policy::PlanOpKind::kFetch;
    op.tier = random->OneIn(2) ? policy::PlanTier::kHost : policy::PlanTier::kDisk;
    op.block = blocks[random->Below(static_cast<uint32_t>(blocks.size()))];
    plan->uses.push_back(op.block);
    plan->ops.push_back(op);
  }
  plan->launches.push_back({0, static_cast<uint32_t>(plan->uses.size())});
  return plan;
}

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_RANDOM_PLAN_H_
