#include "policy/offline/lp_model.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

// One interval over four slots. Every row's columns exist, each place comes once, and nothing waits for
// nothing.
TEST(LpModelTest, IsWellFormedForEveryChoiceOfTiers) {
  const Workload workload = MountainWorkload();
  const Machine machine = PlainMachine(150 * kMega, 30 * kMega);
  const LpTimeline timeline = MakeLpTimeline(workload, FindLifetimes(workload), machine);
  for (const LpTiers tiers : {LpTiers::kHostOnly, LpTiers::kSsdOnly, LpTiers::kMayChange, LpTiers::kKeep}) {
    const LpModel model = MakeLpModel(timeline, machine, tiers);
    const LpProblem& problem = model.problem;
    ASSERT_EQ(problem.lower.size(), problem.cost.size());
    ASSERT_EQ(problem.upper.size(), problem.cost.size());
    ASSERT_EQ(problem.row_lower.size(), problem.row_upper.size());
    std::set<std::pair<int, int>> places;
    for (size_t i = 0; i < problem.values.size(); ++i) {
      EXPECT_TRUE(places.insert({problem.rows[i], problem.columns[i]}).second);
      EXPECT_LT(static_cast<size_t>(problem.columns[i]), problem.cost.size());
      EXPECT_LT(static_cast<size_t>(problem.rows[i]), problem.row_lower.size());
    }
    EXPECT_EQ(model.gaps.size(), timeline.slots.size());
    EXPECT_EQ(model.evicted_host[0] < 0, tiers == LpTiers::kSsdOnly);
    EXPECT_EQ(model.evicted_ssd[0] >= 0, tiers == LpTiers::kSsdOnly || tiers == LpTiers::kKeep);
  }
}

}  // namespace
}  // namespace spillway::policy
