#include "policy/model/lifetimes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;

TEST(LifetimesTest, IntermediateLivesFromFirstToLastUse) {
  const Lifetimes lifetimes = FindLifetimes(MountainWorkload());
  EXPECT_THAT(lifetimes.uses[0], ElementsAre(0, 11));
  const int64_t one = 100 * kMega;
  EXPECT_THAT(lifetimes.live_bytes,
              ElementsAre(one, one, one, one, one, 2 * one, 2 * one, one, one, one, one, one));
  EXPECT_EQ(lifetimes.PeakLive(), 2 * one);
  ASSERT_EQ(lifetimes.intervals.size(), 1u);  // tensor 1 has no kernel between its uses
  const IdleInterval& interval = lifetimes.intervals[0];
  EXPECT_EQ(interval.tensor, 0u);
  EXPECT_EQ(interval.after, 0u);
  EXPECT_EQ(interval.before, 11u);
  EXPECT_EQ(interval.written, 0);
  EXPECT_TRUE(interval.returns);
  EXPECT_FALSE(interval.never_dirty);
}

// A weight: read by kernel 1, updated by kernel 4, of six. The content read at 1 is that of the update
// before.
TEST(LifetimesTest, PersistentContentCrossesTheBoundary) {
  Workload workload;
  workload.tensors = {{8, true}};
  for (int k = 0; k < 6; ++k) workload.kernels.push_back({"k", kMilli, {}, {}, 0});
  workload.kernels[1].inputs = {0};
  workload.kernels[4].inputs = workload.kernels[4].outputs = {0};
  const Lifetimes lifetimes = FindLifetimes(workload);
  ASSERT_EQ(lifetimes.intervals.size(), 2u);
  EXPECT_EQ(lifetimes.intervals[0].after, 1u);
  EXPECT_EQ(lifetimes.intervals[0].before, 4u);
  EXPECT_EQ(lifetimes.intervals[0].written, 4 - 6);
  EXPECT_EQ(lifetimes.intervals[1].after, 4u);
  EXPECT_EQ(lifetimes.intervals[1].before, 7u);
  EXPECT_EQ(lifetimes.intervals[1].written, 4);
  EXPECT_EQ(lifetimes.intervals[0].version, lifetimes.intervals[1].version);
  EXPECT_THAT(lifetimes.live_bytes, ElementsAre(8, 8, 8, 8, 8, 8));
}

TEST(LifetimesTest, OverwrittenContentNeedNotReturnAndReadOnlyNeverDirties) {
  Workload workload;
  workload.tensors = {{8, true}, {16, true}, {4, true}};
  for (int k = 0; k < 5; ++k) workload.kernels.push_back({"k", kMilli, {}, {}, 0});
  workload.kernels[0].inputs = {0, 1};
  workload.kernels[3].inputs = {1};
  workload.kernels[3].outputs = {0};
  const Lifetimes lifetimes = FindLifetimes(workload, 5);
  ASSERT_EQ(lifetimes.intervals.size(), 4u);     // tensor 2 is never used
  EXPECT_FALSE(lifetimes.intervals[0].returns);  // kernel 3 overwrites tensor 0
  EXPECT_TRUE(lifetimes.intervals[1].returns);
  EXPECT_NE(lifetimes.intervals[0].before, lifetimes.intervals[1].before);
  EXPECT_TRUE(lifetimes.intervals[2].never_dirty);
  EXPECT_TRUE(lifetimes.intervals[3].never_dirty);
  EXPECT_EQ(lifetimes.live_bytes[2], 24);
  EXPECT_EQ(FindLifetimes(workload, 10).intervals.size(), 2u);
}

}  // namespace
}  // namespace spillway::policy
