#include "policy/offline/lp_timeline.h"

#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(LpTimelineTest, KeepsOnlyThePointsThatMatter) {
  const Workload workload = MountainWorkload();
  const LpTimeline timeline =
      MakeLpTimeline(workload, FindLifetimes(workload), PlainMachine(150 * kMega, 1000 * kMega));
  // Tensor 0 is made and idle from the end of kernel 0 on, used at the start of 11; 50 MB are in the way from
  // the start of 5 to the end of 6.
  ASSERT_EQ(timeline.slots.size(), 4u);
  const Nanos durations[] = {20 * kMilli, 40 * kMilli, 20 * kMilli, 40 * kMilli};
  const int64_t needs[] = {0, 50'000'000, 50'000'000, 0};
  for (size_t p = 0; p < 4; ++p) {
    EXPECT_EQ(timeline.slots[p].duration, durations[p]) << p;
    EXPECT_EQ(timeline.slots[p].need, needs[p]) << p;
    EXPECT_TRUE(timeline.slots[p].stretches) << p;
  }
  ASSERT_EQ(timeline.intervals.size(), 1u);
  EXPECT_EQ(timeline.intervals[0].release, 0u);
  EXPECT_EQ(timeline.intervals[0].after, 0u);
  EXPECT_EQ(timeline.intervals[0].before, 3u);
  EXPECT_EQ(timeline.Between(0, 3), 100 * kMilli);
  EXPECT_EQ(timeline.Between(3, 0), 20 * kMilli);
}

TEST(LpTimelineTest, IsEmptyWhenEverythingFits) {
  const Workload workload = MountainWorkload();
  const LpTimeline timeline =
      MakeLpTimeline(workload, FindLifetimes(workload), PlainMachine(200 * kMega, 1000 * kMega));
  EXPECT_TRUE(timeline.slots.empty());
  EXPECT_EQ(timeline.ideal, 120 * kMilli);
}

TEST(LpTimelineTest, TensorsWithoutIntervalsTakeNoMemoryWhileIdle) {
  const Workload workload = MountainWorkload();
  const LpTimeline timeline =
      MakeLpTimeline(workload, FindLifetimes(workload, 200 * kMega), PlainMachine(150 * kMega, 1000 * kMega));
  EXPECT_TRUE(timeline.slots.empty());
}

}  // namespace
}  // namespace spillway::policy
