#include "integration/prediction/prediction_reports.h"

#include <gtest/gtest.h>

#include "tests/integration/prediction/access_sets.h"

namespace spillway::integration {
namespace {

using allocator::BlockId;

class PredictionReportsTest : public testing::Test {
 protected:
  PredictionReportsTest() {
    for (uint32_t block = 1; block <= 30; ++block) recorder_.AddAllocate(BlockId(0, block), 2, 2);
  }
  void RunIterations(int count, uint32_t blocks) {
    for (int i = 0; i < count; ++i) {
      for (uint32_t block = 1; block <= blocks; ++block)
        recorder_.AddLaunch(index_++, 1000 * blocks + block, SetOf({block}));
    }
    job_.Take(&recorder_);
    job_.Follow([](policy::LaunchIndex, const policy::LaunchRecord&) {});
  }

  TraceRecorder recorder_;
  JobFollower job_{policy::IterationOptions()};
  policy::KernelTimes times_;
  PredictionReports reports_;
  policy::LaunchIndex index_ = 0;
};

TEST_F(PredictionReportsTest, NothingIsReportedBeforeAnythingRepeats) {
  EXPECT_EQ(reports_.uses(), nullptr);
  EXPECT_EQ(reports_.last(), nullptr);
  EXPECT_FALSE(reports_.Followed(job_, times_, nullptr, 0).has_value());
  EXPECT_EQ(reports_.stats().plans, 0u);
}

TEST_F(PredictionReportsTest, TheUsesAreThoseOfWhatIsFollowedForLongest) {
  RunIterations(2, 8);
  reports_.Enter(job_);
  RunIterations(20, 8);
  reports_.RecordFollowed(job_);
  const auto first = reports_.uses();
  ASSERT_NE(first, nullptr);
  RunIterations(3, 10);
  ASSERT_EQ(job_.IterationLaunches(), 10u);
  reports_.Enter(job_);
  EXPECT_EQ(reports_.uses(), first);
  RunIterations(40, 10);
  reports_.RecordFollowed(job_);
  EXPECT_NE(reports_.uses(), first);
}

TEST_F(PredictionReportsTest, AnIterationIsKeptAndGivenWhenAskedFor) {
  RunIterations(4, 8);
  reports_.RecordIteration(job_);
  const auto followed = reports_.Followed(job_, times_, nullptr, 7);
  ASSERT_TRUE(followed.has_value());
  EXPECT_EQ(followed->recorded.workload.kernels.size(), 8u);
  EXPECT_EQ(followed->samples, 7u);
  EXPECT_FALSE(followed->first.has_value());
  EXPECT_FALSE(reports_.TakeAsked());
  reports_.AskForIteration();
  EXPECT_TRUE(reports_.TakeAsked());
  EXPECT_FALSE(reports_.TakeAsked());
  reports_.SetLast(*followed);
  EXPECT_EQ(reports_.last()->launches.end() - reports_.last()->launches.begin(), 8u);
}

TEST_F(PredictionReportsTest, CountsAreThoseThatWerePublishedLast) {
  PredictorStats stats;
  stats.plans = 3;
  reports_.Publish(stats);
  EXPECT_EQ(reports_.stats().plans, 3u);
}

}  // namespace
}  // namespace spillway::integration
