// A GPU of 100 MiB, of which external memory has a share of 16 MiB. The cases are computed by hand.

#include "allocator/memory/gpu_budget.h"

#include <gtest/gtest.h>

#include "tests/sizes.h"

namespace spillway::allocator {
namespace {

TEST(GpuBudgetTest, TheShareOfExternalMemoryStaysFreeEvenWhileUnused) {
  EXPECT_EQ((GpuBudget{100 * kMiB, 16 * kMiB, 0}.ChunkTarget()), 84 * kMiB);
  EXPECT_EQ((GpuBudget{100 * kMiB, 16 * kMiB, 10 * kMiB}.ChunkTarget()), 84 * kMiB);
  EXPECT_EQ((GpuBudget{100 * kMiB, 16 * kMiB, 40 * kMiB}.ChunkTarget()), 60 * kMiB);
  EXPECT_EQ((GpuBudget{100 * kMiB, 16 * kMiB, 400 * kMiB}.ChunkTarget()), 0u);
  EXPECT_EQ(DefaultExternalShare(100 * kMiB), 16 * kMiB);
  EXPECT_EQ(DefaultExternalShare(10'000 * kMiB), 200 * kMiB);
}

Charge ChargeOf(uint64_t live, uint64_t block, uint64_t set) {
  Charge charge;
  charge.live = live * kMiB;
  charge.largest_block = block * kMiB;
  charge.largest_set = set * kMiB;
  charge.chunk_target = 84 * kMiB;
  return charge;
}

TEST(ChargeTest, WhatFitsTheGpuNeedsNoExchange) {
  EXPECT_EQ(ChargeOf(84, 84, 84).BeyondGpu(), 0u);
  EXPECT_TRUE(ChargeOf(84, 84, 84).FitsGpu());
  EXPECT_FALSE(ChargeOf(85, 84, 84).FitsGpu());
}

TEST(ChargeTest, HeadroomIsTheLargestLaunchAndOneBlockThatLeaves) {
  EXPECT_EQ(ChargeOf(0, 10, 15).Headroom(), 25 * kMiB);
  EXPECT_EQ(ChargeOf(0, 20, 15).Headroom(), 40 * kMiB);  // a launch may name the block alone
  EXPECT_EQ(ChargeOf(144, 10, 0).BeyondGpu(), 80 * kMiB);
  EXPECT_EQ(ChargeOf(139, 10, 15).BeyondGpu(), 80 * kMiB);
  EXPECT_EQ(ChargeOf(85, 1, 0).BeyondGpu(), 3 * kMiB);
}

TEST(ChargeTest, WhatIsPausedHasAPlaceAndComesBack) {
  Charge charge = ChargeOf(80, 10, 0);
  charge.paused = 50 * kMiB;
  EXPECT_EQ(charge.BeyondGpu(), 50 * kMiB) << "a place for what is paused";
  charge.live = 130 * kMiB;
  EXPECT_EQ(charge.BeyondGpu(), 66 * kMiB) << "the others fit now, and do not beside what comes back";
  charge.live = 150 * kMiB;
  EXPECT_EQ(charge.BeyondGpu(), 86 * kMiB) << "nor do they fit now";
}

TEST(ChargeTest, ABlockMayTakeAllOfTheGpuAloneInItsLaunch) {
  EXPECT_TRUE(ChargeOf(90, 84, 0).LaunchFits());
  EXPECT_FALSE(ChargeOf(90, 85, 0).LaunchFits());
  EXPECT_FALSE(ChargeOf(90, 10, 85).LaunchFits());
}

TEST(ChargeTest, WhatNeverLeavesIsNotThereForLaunches) {
  Charge charge = ChargeOf(100, 10, 40);
  charge.pinned = 44 * kMiB;
  EXPECT_TRUE(charge.LaunchFits());
  charge.pinned = 45 * kMiB;
  EXPECT_FALSE(charge.LaunchFits());
}

TEST(GpuBudgetTest, TheDeviceMayAllowLessThanTheBudget) {
  GpuBudget budget = {.budget = 1000, .external_share = 100, .external = 40};
  EXPECT_EQ(budget.ChunkTarget(), 900u);
  // Of the share 60 are still to come.
  budget.device_limit = 500 + 200;
  EXPECT_EQ(budget.ChunkTarget(), 640u);
  EXPECT_EQ(budget.BudgetTarget(), 900u);
  budget.device_limit = 10;
  EXPECT_EQ(budget.ChunkTarget(), 0u);
  budget.external = 400;
  budget.device_limit = 300 + 20;
  EXPECT_EQ(budget.ChunkTarget(), 320u) << "the share is used up";
}

TEST(GpuBudgetTest, TheUnusedShareIsLentFirstAndThenTheReserve) {
  GpuBudget budget = {.budget = 1000, .external_share = 100, .external = 40, .reserve = 30};
  EXPECT_EQ(budget.ChunkTarget(), 900u);
  EXPECT_EQ(budget.Lendable(), 90u);
  EXPECT_EQ(budget.LentFor(900), 0u);
  EXPECT_EQ(budget.LentFor(950), 50u);
  EXPECT_EQ(budget.LentFor(990), 90u);
  EXPECT_GT(budget.LentFor(991), budget.Lendable());
  budget.lent = 50;
  EXPECT_EQ(budget.ChunkTarget(), 950u);
  EXPECT_EQ(budget.LentReserve(), 0u);
  budget.lent = 80;
  EXPECT_EQ(budget.ChunkTarget(), 980u);
  EXPECT_EQ(budget.LentReserve(), 20u);
  EXPECT_EQ(budget.LentFor(950), 50u) << "what is lent already plays no part";
  budget.SetExternal(40, 20);
  EXPECT_EQ(budget.ChunkTarget(), 960u) << "external memory that comes takes its share back";
  EXPECT_EQ(budget.LentReserve(), 20u) << "and not from the reserve instead";
  budget.SetExternal(40, 200);
  EXPECT_EQ(budget.ChunkTarget(), 780u) << "20 of the reserve, and 240 of 1000 taken";
  budget.SetExternal(40, 0);
  EXPECT_EQ(budget.ChunkTarget(), 920u) << "what is lent is of the share again";
}

TEST(GpuBudgetTest, OfADeviceThatHasLessTheShareAloneIsLent) {
  GpuBudget budget = {.budget = 1000, .external_share = 100, .reserve = 30, .device_limit = 700};
  EXPECT_EQ(budget.ChunkTarget(), 600u);
  EXPECT_EQ(budget.LentFor(700), 100u);
  EXPECT_GT(budget.LentFor(701), budget.Lendable());
}

TEST(GpuBudgetTest, AnApplicationsLimitCapsTheBudgetAndWhatIsLent) {
  GpuBudget budget = {.budget = 1000, .external_share = 100, .reserve = 30, .cap = 500};
  EXPECT_EQ(budget.ChunkTarget(), 400u);
  EXPECT_EQ(budget.LentFor(500), 100u);
  EXPECT_GT(budget.LentFor(501), budget.Lendable());
  budget.cap = 1010;
  EXPECT_EQ(budget.ChunkTarget(), 900u);
  EXPECT_EQ(budget.Lendable(), 110u);
  budget.cap = 50;  // below the share
  EXPECT_EQ(budget.ChunkTarget(), 0u);
  EXPECT_EQ(budget.LentFor(50), 100u);
  EXPECT_EQ(budget.LentFor(51), UINT64_MAX);
  budget.device_limit = 40;
  EXPECT_EQ(budget.LentFor(40), 100u);
  EXPECT_EQ(budget.LentFor(41), UINT64_MAX);
}

}  // namespace
}  // namespace spillway::allocator
