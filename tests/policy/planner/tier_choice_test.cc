#include "policy/planner/tier_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

// Two evictions of 50 MB, of which a host of 60 MB takes one.
TEST(ChooseTiersTest, OnlyWhatTheHostCannotHoldGoesToTheSsd) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  Machine machine = PlainMachine(50 * kMega, 60 * kMega);
  machine.piece_bytes = 10 * kMega;
  for (TierOrder order : {TierOrder::kNearestFirst, TierOrder::kSpread, TierOrder::kFarthestFirst}) {
    TransferPlan plan;
    plan.kernel_times = TimesOf(workload);
    plan.evictions = {{0, 0, 5, 4, PlanTier::kHost}, {0, 5, 10, 4, PlanTier::kHost}};
    ChooseTiers(workload, lifetimes, machine, order, &plan);
    EXPECT_NE(plan.evictions[0].tier, plan.evictions[1].tier);
    machine.host_bytes = 0;
    ChooseTiers(workload, lifetimes, machine, order, &plan);
    EXPECT_EQ(plan.evictions[0].tier, PlanTier::kDisk);
    EXPECT_EQ(plan.evictions[1].tier, PlanTier::kDisk);
    machine.host_bytes = 200 * kMega;
    ChooseTiers(workload, lifetimes, machine, order, &plan);
    EXPECT_EQ(plan.evictions[0].tier, PlanTier::kHost);
    EXPECT_EQ(plan.evictions[1].tier, PlanTier::kHost);
    machine.host_bytes = 60 * kMega;
  }
}

TEST(ChooseTiersTest, ASixtyFourthOfASmallHostStaysFree) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  for (const auto& [host_bytes, on_host] : {std::pair<Bytes, int>{51 * kMega, 1}, {50 * kMega, 0}}) {
    Machine machine = PlainMachine(50 * kMega, host_bytes);
    machine.piece_bytes = 10 * kMega;
    TransferPlan plan;
    plan.kernel_times = TimesOf(workload);
    plan.evictions = {{0, 0, 5, 4, PlanTier::kHost}, {0, 5, 10, 4, PlanTier::kHost}};
    ChooseTiers(workload, lifetimes, machine, TierOrder::kSpread, &plan);
    EXPECT_EQ(std::ranges::count(plan.evictions, PlanTier::kHost, &PlannedEviction::tier), on_host);
  }
}

// Half of the link is the SSD's: 50 MB take 100 ms. Both are due at kernel 11; the first must begin before
// the second.
TEST(FindReadLeadsTest, QueuesBackwardsFromTheNextUse) {
  const Workload workload = MountainWorkload(20 * kMilli);
  TransferPlan plan;
  plan.kernel_times = TimesOf(workload);
  plan.evictions = {{0, 0, 5, 4, PlanTier::kHost}, {0, 5, 10, 4, PlanTier::kHost}};
  Machine machine = PlainMachine(50 * kMega, 200 * kMega);
  machine.piece_bytes = 10 * kMega;
  FindReadLeads(workload, FindLifetimes(workload), machine, &plan);
  EXPECT_EQ(plan.evictions[0].read_lead, 200 * kMilli);
  EXPECT_EQ(plan.evictions[1].read_lead, 100 * kMilli);
  plan.evictions[0].tier = PlanTier::kDisk;
  FindReadLeads(workload, FindLifetimes(workload), machine, &plan);
  EXPECT_EQ(plan.evictions[0].read_lead, 0);
  EXPECT_EQ(plan.evictions[1].read_lead, 100 * kMilli);
}

}  // namespace
}  // namespace spillway::policy
