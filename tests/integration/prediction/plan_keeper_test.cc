#include "integration/prediction/plan_keeper.h"

#include <gtest/gtest.h>

#include "tests/integration/hooks/fake_residency.h"
#include "tests/integration/prediction/access_sets.h"

namespace spillway::integration {
namespace {

using allocator::BlockId;
using Change = PlanKeeper::Change;

constexpr uint64_t kBlock = 100;

// Eight blocks, of which four fit.
class PlanKeeperTest : public testing::Test {
 protected:
  PlanKeeperTest() {
    residency_.stats.chunk_target_bytes = 4 * kBlock;
    residency_.stats.largest_set_bytes = 2 * kBlock;
    for (uint32_t block = 1; block <= 8; ++block) recorder_.AddAllocate(BlockId(0, block), kBlock, kBlock);
  }
  void Launch(uint32_t block) { recorder_.AddLaunch(index_++, 100 + block, SetOf({block})); }
  void RunIteration() {
    for (uint32_t block = 1; block <= 8; ++block) Launch(block);
    for (uint32_t block = 8; block >= 1; --block) Launch(block);
  }
  void Follow() {
    job_.Take(&recorder_);
    job_.Follow([this](policy::LaunchIndex index, const policy::LaunchRecord& launch) {
      keeper_.FollowHints(index, launch);
    });
  }
  void ComeToASequence() {
    RunIteration();
    RunIteration();
    Follow();
  }

  FakeResidency residency_;
  TraceRecorder recorder_;
  JobFollower job_{policy::IterationOptions()};
  policy::KernelTimes times_;
  PlanKeeper keeper_{nullptr, true, {}, nullptr, &job_, &times_};
  policy::LaunchIndex index_ = 0;
};

TEST_F(PlanKeeperTest, ASequenceHasAPlanWhichIsTakenUpAgain) {
  EXPECT_EQ(keeper_.Current(), nullptr);
  EXPECT_FALSE(keeper_.Improve());
  ComeToASequence();
  const PlanKeeper::Plan plan = keeper_.Enter(&residency_);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->start, 16u);
  EXPECT_FALSE(plan->ops.empty());
  EXPECT_EQ(keeper_.readoptions(), 0u);
  EXPECT_NE(keeper_.Enter(&residency_), nullptr);
  EXPECT_EQ(keeper_.readoptions(), 1u);
  EXPECT_GT(keeper_.forecast().ideal, 0);
}

TEST_F(PlanKeeperTest, OtherMemoryMakesAPlanAnewAtOnce) {
  ComeToASequence();
  keeper_.Enter(&residency_);
  EXPECT_EQ(keeper_.KeepUpToDate(&residency_), Change::kNone);
  residency_.stats.chunk_target_bytes = 6 * kBlock;
  Launch(1);
  Follow();
  EXPECT_EQ(keeper_.KeepUpToDate(&residency_), Change::kAnew);
  EXPECT_EQ(keeper_.Current()->budget_bytes, 6 * kBlock - 6 * kBlock / 16);
  EXPECT_EQ(keeper_.KeepUpToDate(&residency_), Change::kNone);
}

// A plan without moves is of no use once the job does not fit, however little is missing.
TEST_F(PlanKeeperTest, AJobThatFitsNoMoreIsPlannedAnewAtOnceAndOneThatFitsAgainInTime) {
  residency_.stats.chunk_target_bytes = 8 * kBlock;
  ComeToASequence();
  EXPECT_TRUE(keeper_.Enter(&residency_)->ops.empty());
  residency_.stats.chunk_target_bytes -= 1;
  Launch(1);
  Follow();
  EXPECT_EQ(keeper_.KeepUpToDate(&residency_), Change::kAnew);
  EXPECT_FALSE(keeper_.Current()->ops.empty());
  residency_.stats.chunk_target_bytes += 1;
  EXPECT_EQ(keeper_.KeepUpToDate(&residency_), Change::kNone) << "in the midst of an iteration";
  for (uint32_t block = 2; block <= 8; ++block) Launch(block);
  for (uint32_t block = 8; block >= 1; --block) Launch(block);
  Follow();
  EXPECT_EQ(keeper_.KeepUpToDate(&residency_), Change::kAnew);
  EXPECT_TRUE(keeper_.Current()->ops.empty());
}

TEST_F(PlanKeeperTest, HintsFollowTheJobUntilItIsNowhere) {
  ComeToASequence();
  const PlanKeeper::Plan plan = keeper_.Enter(&residency_);
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(keeper_.MakeHints(*plan)->hints);
  PlanKeeper::Plan moved;
  EXPECT_FALSE(keeper_.TakeMovedHints(&moved));
  Launch(1);
  Launch(3);  // expected: 2
  Follow();
  ASSERT_EQ(job_.sequence(), policy::kNoSequence);
  ASSERT_TRUE(keeper_.TakeMovedHints(&moved));
  EXPECT_EQ(moved->PositionOf(index_), 3u);
  for (uint32_t strange = 0; strange < 5; ++strange) Launch(20 + strange);
  Follow();
  ASSERT_TRUE(keeper_.TakeMovedHints(&moved));
  EXPECT_EQ(moved, nullptr);
  EXPECT_FALSE(keeper_.TakeMovedHints(&moved));
}

}  // namespace
}  // namespace spillway::integration
