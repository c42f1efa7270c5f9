#include "integration/prediction/job_follower.h"

#include <gtest/gtest.h>

#include "tests/integration/prediction/access_sets.h"

namespace spillway::integration {
namespace {

using allocator::BlockId;

class JobFollowerTest : public testing::Test {
 protected:
  void Launch(uint32_t block) { recorder_.AddLaunch(index_++, 100 + block, SetOf({block})); }
  void RunIteration() {
    for (uint32_t block = 1; block <= 8; ++block) Launch(block);
  }
  // How many launches were shown.
  size_t TakeAndFollow() {
    size_t seen = 0;
    EXPECT_TRUE(follower_.Take(&recorder_));
    follower_.Follow([&](policy::LaunchIndex, const policy::LaunchRecord&) { ++seen; });
    return seen;
  }

  TraceRecorder recorder_;
  JobFollower follower_{policy::IterationOptions()};
  policy::LaunchIndex index_ = 0;
};

TEST_F(JobFollowerTest, ARecurringIterationIsASequence) {
  EXPECT_EQ(follower_.IterationLaunches(), 0u);
  EXPECT_EQ(follower_.IterationsDone(), 0u);
  RunIteration();
  RunIteration();
  EXPECT_EQ(TakeAndFollow(), 16u);
  EXPECT_EQ(follower_.IterationLaunches(), 8u);
  EXPECT_EQ(follower_.IterationsDone(), 1u) << "the second";
  RunIteration();
  Launch(1);
  EXPECT_EQ(TakeAndFollow(), 9u);
  EXPECT_EQ(follower_.IterationsDone(), 2u);
  EXPECT_EQ(TakeAndFollow(), 0u);
}

TEST_F(JobFollowerTest, KeepsTheSizesOfBlocksAndWhatMovesCopyLatelyAndAtLeast) {
  recorder_.AddAllocate(BlockId(0, 1), 64, 32);
  Launch(1);
  recorder_.AddAllocate(BlockId(0, 1), 64, 48);
  recorder_.AddAllocate(BlockId(0, 2), 16, 16);
  Launch(2);
  TakeAndFollow();
  EXPECT_EQ(follower_.sizes().at(TraceBlockOf(BlockId(0, 1))), 64u);
  EXPECT_EQ(follower_.latest_copied().at(TraceBlockOf(BlockId(0, 1))), 48u);
  EXPECT_EQ(follower_.copied().at(TraceBlockOf(BlockId(0, 1))), 32u);
  EXPECT_EQ(follower_.sizes().at(TraceBlockOf(BlockId(0, 2))), 16u);
}

TEST_F(JobFollowerTest, CountsMarksAndKnowsTheLast) {
  EXPECT_FALSE(follower_.last_mark().has_value());
  RunIteration();
  recorder_.AddMark();
  RunIteration();
  recorder_.AddMark();
  Launch(1);
  TakeAndFollow();
  EXPECT_EQ(follower_.marks(), 2u);
  EXPECT_EQ(follower_.last_mark(), 16u);
}

TEST_F(JobFollowerTest, WhereLaunchesWereLostThePlaceIsForgotten) {
  RunIteration();
  RunIteration();
  TakeAndFollow();
  ASSERT_EQ(follower_.IterationLaunches(), 8u);
  for (int i = 0; i < 1 << 18; ++i) Launch(1 + i % 8);
  EXPECT_FALSE(follower_.Take(&recorder_));
  EXPECT_EQ(follower_.IterationLaunches(), 0u);
}

TEST_F(JobFollowerTest, KeepsNoMoreLaunchesThanItNeeds) {
  for (int i = 0; i < 4000; ++i) {
    RunIteration();
    TakeAndFollow();
    follower_.Trim();
  }
  EXPECT_LT(follower_.trace().end() - follower_.trace().begin(),
            2 * follower_.tracker().wanted() + JobFollower::kLaunchesAtATime + 9);
  EXPECT_EQ(follower_.trace().end(), 32'000u);
}

}  // namespace
}  // namespace spillway::integration
