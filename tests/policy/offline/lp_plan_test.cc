#include "policy/offline/lp_plan.h"

#include <gtest/gtest.h>

#include "policy/model/lifetimes.h"
#include "policy/simulator/simulator.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

// 50 of 100 MB are to be away, in pieces of 10: the first five.
TEST(RoundLpTest, WholePiecesAndTheEarliestTimeToWrite) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  LpBound solution;
  solution.gaps.assign(workload.kernels.size(), 0);
  solution.evictions = {{0, 48e6, 0}};
  const TransferPlan plan = RoundLp(workload, lifetimes, PieceMachine(150 * kMega, 100 * kMega), solution);
  ASSERT_EQ(plan.evictions.size(), 1u);
  EXPECT_EQ(plan.evictions[0].first_piece, 0u);
  EXPECT_EQ(plan.evictions[0].last_piece, 5u);
  EXPECT_EQ(plan.evictions[0].from, 4u);  // written in 50.5 ms, from the end of kernel 0 on
  EXPECT_EQ(plan.evictions[0].tier, PlanTier::kHost);
}

TEST(PlanByLpTest, IsCarriedOutInTheBoundsTime) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  const Machine machine = PieceMachine(150 * kMega, 100 * kMega);
  const auto plan = PlanByLp(workload, lifetimes, machine);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Execute(workload, lifetimes, machine, *plan, {})->iteration, 240 * kMilli);
}

}  // namespace
}  // namespace spillway::policy
