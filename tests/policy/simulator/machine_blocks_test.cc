#include "policy/simulator/machine_blocks.h"

#include <gtest/gtest.h>

namespace spillway::policy {
namespace {

constexpr Bytes kMebibyte = 1 << 20;
using Move = MachineBlocks::Block::Move;

class MachineBlocksTest : public testing::Test {
 protected:
  // Four blocks of 8 MiB, a GPU for three, host memory for one; 8 MiB take a second, twice that over the
  // disk.
  static Machine Small() {
    Machine machine;
    machine.gpu_bytes = 24 * kMebibyte;
    machine.host_bytes = 8 * kMebibyte;
    machine.pcie_in = machine.pcie_out = 8.0 * kMebibyte;
    machine.ssd_read = machine.ssd_write = 4.0 * kMebibyte;
    return machine;
  }
  // All that is to move, and the time at which nothing moves any more.
  Nanos Finish() {
    for (;;) {
      while (blocks_.Start(now_)) {
      }
      blocks_.Arrange(now_);
      const Nanos next = blocks_.NextEvent(kForever);
      if (next == kForever) return now_;
      blocks_.Advance(now_ = next, 0);
    }
  }

  static constexpr Nanos kForever = 1'000'000'000'000, kSecond = 1'000'000'000;
  Machine machine_ = Small();
  const ExecutionOptions options_ = {.iterations = 3};
  ExecutionStats metrics_{1, options_};
  MachineBlocks blocks_{std::vector<Bytes>(4, 8 * kMebibyte), machine_, &metrics_};
  Nanos now_ = 0;
};

TEST_F(MachineBlocksTest, ANewBlockIsThereAndOneThatIsAwayIsWaitedFor) {
  blocks_.PlaceAway(0);
  EXPECT_FALSE(blocks_.Use(1, 0, true));
  EXPECT_TRUE(blocks_.at(1).arrived);
  EXPECT_TRUE(blocks_.Use(0, 0, false));
  EXPECT_FALSE(blocks_.at(0).arrived);
  EXPECT_EQ(blocks_.free(), 8 * kMebibyte);
  EXPECT_NEAR(Finish(), kSecond, 10);
  EXPECT_TRUE(blocks_.at(0).arrived);
  EXPECT_TRUE(blocks_.at(0).copy);
}

TEST_F(MachineBlocksTest, WhatTheHostCannotTakeGoesToTheDisk) {
  blocks_.Use(0, 0, true);
  blocks_.Use(1, 0, true);
  blocks_.Leave(0, PlanTier::kHost, 0);
  blocks_.Leave(1, PlanTier::kHost, 0);
  EXPECT_EQ(blocks_.leaving(), 16 * kMebibyte);
  Finish();
  EXPECT_EQ(blocks_.free(), 24 * kMebibyte);
  EXPECT_EQ(blocks_.leaving(), 0u);
  EXPECT_EQ(blocks_.at(0).tier, PlanTier::kHost);
  EXPECT_EQ(blocks_.at(1).tier, PlanTier::kDisk);
  EXPECT_EQ(blocks_.peak_host(), 8 * kMebibyte);
  EXPECT_TRUE(blocks_.AnyAway(PlanTier::kDisk));
}

TEST_F(MachineBlocksTest, AnUnchangedBlockLeavesWithoutACopy) {
  blocks_.PlaceAway(0);
  blocks_.Fetch(0);
  const Nanos there = Finish();
  blocks_.Leave(0, PlanTier::kHost, 0);
  EXPECT_FALSE(blocks_.at(0).on_gpu);
  EXPECT_EQ(Finish(), there);
}

TEST_F(MachineBlocksTest, ALaunchTakesACopyBackWhichEndsWithItsUnit) {
  blocks_.Use(0, 0, true);
  blocks_.CopyOut(0, PlanTier::kHost);
  EXPECT_EQ(blocks_.ViewOf(0, 1).place, PlanBlockView::Place::kLeaving);
  ASSERT_TRUE(blocks_.Start(0));
  blocks_.Advance(now_ = kSecond / 10, 0);
  blocks_.Use(0, 1, false);
  EXPECT_EQ(blocks_.ViewOf(0, 1).place, PlanBlockView::Place::kDraining);
  EXPECT_NEAR(Finish(), kSecond / 4, 10);  // 2 of 8 MiB
  EXPECT_FALSE(blocks_.at(0).copy);
  EXPECT_EQ(blocks_.ViewOf(0, 1).place, PlanBlockView::Place::kOnGpu);
  // The host's memory is there for another.
  blocks_.Leave(0, PlanTier::kHost, 0);
  Finish();
  EXPECT_EQ(blocks_.at(0).tier, PlanTier::kHost);
}

TEST_F(MachineBlocksTest, MemoryOfAFreedBlockComesWhenTheGpuIsThroughWithIt) {
  blocks_.Use(0, 5, true);
  blocks_.Free(0);
  blocks_.ReleaseDead(5);
  EXPECT_TRUE(blocks_.at(0).on_gpu);
  EXPECT_FALSE(blocks_.ViewOf(0, 5).live);
  blocks_.ReleaseDead(6);
  EXPECT_FALSE(blocks_.at(0).on_gpu);
  EXPECT_EQ(blocks_.free(), 24 * kMebibyte);
}

TEST_F(MachineBlocksTest, ABlockHandedOutAgainBeforeThatWaitsForWhatIsOnItsWay) {
  blocks_.PlaceAway(0);
  blocks_.Use(0, 0, false);  // its bytes are under way
  blocks_.Free(0);
  blocks_.Use(0, 1, true);
  EXPECT_FALSE(blocks_.at(0).arrived);
  Finish();
  EXPECT_TRUE(blocks_.at(0).arrived);
  EXPECT_FALSE(blocks_.at(0).dead);
  EXPECT_EQ(blocks_.at(0).move, Move::kNone);
}

TEST_F(MachineBlocksTest, WhatALaunchWaitsForGoesFirst) {
  machine_.host_bytes = 32 * kMebibyte;
  for (const uint32_t block : {0, 1, 2}) blocks_.PlaceAway(block);
  blocks_.Fetch(0);
  ASSERT_TRUE(blocks_.Start(0));
  blocks_.Fetch(1);
  blocks_.Use(2, 0, false);
  blocks_.Advance(now_ = blocks_.NextEvent(kForever), 0);
  ASSERT_TRUE(blocks_.Start(now_));
  blocks_.Advance(now_ = blocks_.NextEvent(kForever), 0);
  EXPECT_TRUE(blocks_.at(2).arrived);
  EXPECT_FALSE(blocks_.at(1).arrived);
}

TEST_F(MachineBlocksTest, TheHostAndTheDiskShareTheLink) {
  blocks_.PlaceAway(0);
  blocks_.PlaceAway(1);  // on the disk
  blocks_.Fetch(0);
  blocks_.Fetch(1);
  // Each has half of the link; neither would be done sooner than the disk alone.
  EXPECT_NEAR(static_cast<double>(Finish()), 2.0 * kSecond, 0.01 * kSecond);
}

}  // namespace
}  // namespace spillway::policy
