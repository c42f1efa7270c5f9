#include "integration/prediction/sequences.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

// A job that hands blocks out and frees them in its steps.
class FollowedPeriodTest : public ::testing::Test {
 protected:
  // One step: `length` launches, tags from `first` on; a block of the step's own is handed out before its
  // second launch.
  void RunStep(uint64_t first, uint32_t length) {
    for (uint32_t i = 0; i < length; ++i) {
      if (i == 1) trace_.AddAllocate(100 + first, 1 << 20);
      trace_.AddLaunch(first + i, std::vector<policy::TraceBlock>{first + i});
      if (i == 1) trace_.AddFree(100 + first);
    }
  }
  policy::Trace trace_;
  FollowedPeriod followed_;
};

TEST_F(FollowedPeriodTest, NothingWithoutAPeriod) {
  RunStep(1, 4);
  followed_.Note(trace_, 0);
  EXPECT_EQ(followed_.Most(), nullptr);
}

TEST_F(FollowedPeriodTest, KeepsOneStepWithItsEvents) {
  for (int i = 0; i < 5; ++i) {
    RunStep(1, 4);
    followed_.Note(trace_, i < 1 ? 0 : 4);
  }
  const FollowedPeriod::Step* const step = followed_.Most();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->period, 4u);
  EXPECT_EQ(step->launches, 16u);
  ASSERT_EQ(step->trace.end() - step->trace.begin(), 4u);
  const policy::LaunchIndex begin = step->trace.begin();
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(step->trace.at(begin + i).tag, 1 + i);
    EXPECT_EQ(step->trace.at(begin + i).blocks[0], 1 + i);
  }
  ASSERT_EQ(step->trace.events().size(), 2u);
  EXPECT_EQ(step->trace.events()[0].before, begin + 1);
  EXPECT_EQ(step->trace.events()[0].bytes, uint64_t{1} << 20);
  EXPECT_FALSE(step->trace.events()[1].allocated());
  EXPECT_EQ(step->trace.events()[1].before, begin + 2);
}

TEST_F(FollowedPeriodTest, TheLongestFollowedWinsAlsoWhenItComesBack) {
  const auto run = [this](uint64_t first, uint32_t length, int times) {
    for (int i = 0; i < times; ++i) {
      RunStep(first, length);
      followed_.Note(trace_, i < 2 ? 0 : length);
    }
  };
  run(1, 4, 8);     // 24 launches followed
  run(200, 6, 10);  // 48
  EXPECT_EQ(followed_.Most()->period, 6u);
  run(1, 4, 12);  // 40 more
  EXPECT_EQ(followed_.Most()->period, 4u);
  EXPECT_EQ(followed_.Most()->launches, 64u);
}

TEST_F(FollowedPeriodTest, APassageFromOneStepToAnotherIsNotKept) {
  for (int i = 0; i < 3; ++i) RunStep(1, 4);
  RunStep(50, 4);
  followed_.Note(trace_, 4);  // as if the period were known already
  EXPECT_EQ(followed_.Most(), nullptr);
  RunStep(50, 4);
  followed_.Note(trace_, 4);
  ASSERT_NE(followed_.Most(), nullptr);
  EXPECT_EQ(followed_.Most()->trace.at(followed_.Most()->trace.begin()).tag, 50u);
}

TEST_F(FollowedPeriodTest, KeepsFewLengths) {
  for (uint32_t length = 2; length < 30; ++length) {
    for (int i = 0; i < 3; ++i) RunStep(length * 100, length);
    followed_.Note(trace_, length);
  }
  RunStep(7, 3);
  ASSERT_NE(followed_.Most(), nullptr);
  EXPECT_GT(followed_.Most()->period, 20u);
}

}  // namespace
}  // namespace spillway::integration
