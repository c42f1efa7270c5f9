#include "policy/simulator/due_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(DuePartsTest, TriggersByKernel) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  const Machine machine = PieceMachine(150 * kMega, 0);
  const TransferPlan plan = HalfAway(PlanTier::kDisk);
  const PartState state(workload, machine.piece_bytes, 64 << 20, CutsOf(workload, lifetimes, plan));
  ASSERT_EQ(state.parts.size(), 4u);  // 50 and 50; 60 and 40
  EXPECT_EQ(state.parts[0].bytes, 50 * kMega);
  EXPECT_EQ(state.parts[3].bytes, 40 * kMega);
  const DueParts due = MakeDueParts(workload, lifetimes, plan, state);
  ASSERT_EQ(due.writes[0].size(), 1u);
  EXPECT_EQ(due.writes[0][0].expires, 11u);
  ASSERT_EQ(due.drops[0].size(), 1u);
  EXPECT_EQ(due.drops[0][0].counted_from, 4u);
  EXPECT_EQ(due.drops[0][0].away, 11u);
  EXPECT_FALSE(due.drops[0][0].keep_copy);
  EXPECT_TRUE(due.away_at_start.empty());
}

TEST(AwayBytesTest, CountsAllTiersOrTheHostAlone) {
  const Workload workload = MountainWorkload();
  const Lifetimes lifetimes = FindLifetimes(workload);
  const auto bytes = [&](PlanTier tier, bool host_only) {
    return AwayBytes(workload, lifetimes, 10 * kMega, HalfAway(tier), host_only);
  };
  const int64_t half = 50 * kMega;
  const auto half_of_them = testing::ElementsAre(0, 0, 0, 0, half, half, half, half, half, half, half, 0);
  EXPECT_THAT(bytes(PlanTier::kHost, true), half_of_them);
  EXPECT_THAT(bytes(PlanTier::kDisk, true), testing::Each(0));
  EXPECT_THAT(bytes(PlanTier::kDisk, false), half_of_them);
}

// 100 MB over kernels 0 to 11 and 100 more at 5 and 6, of which 50 are away from 4 to 10.
TEST(ExpectedBytesTest, WhatIsAwayIsNotThere) {
  const Workload workload = MountainWorkload();
  const auto expected =
      ExpectedBytes(workload, FindLifetimes(workload), 10 * kMega, HalfAway(PlanTier::kHost));
  const int64_t mega = kMega;
  EXPECT_THAT(expected,
              testing::ElementsAre(100 * mega, 100 * mega, 100 * mega, 100 * mega, 50 * mega, 150 * mega,
                                   150 * mega, 50 * mega, 50 * mega, 50 * mega, 50 * mega, 100 * mega));
}

}  // namespace
}  // namespace spillway::policy
