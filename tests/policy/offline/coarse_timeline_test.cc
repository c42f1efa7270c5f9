// Timelines of few slots: what stays, what is joined, and that intervals only become longer.

#include "policy/offline/coarse_timeline.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

// Eight persistent tensors of 10 MB, each updated by one of the first eight kernels; the ninth needs 100 MB
// besides.
Workload Updates() {
  Workload workload;
  workload.tensors.assign(8, {10 * kMega, true});
  for (uint32_t k = 0; k < 8; ++k) workload.kernels.push_back({"k", 10 * kMilli, {k}, {k}, 0});
  workload.kernels.push_back({"k", 10 * kMilli, {}, {}, 100 * kMega});
  return workload;
}

LpTimeline Fine(const Workload& workload, Bytes gpu) {
  return MakeLpTimeline(workload, FindLifetimes(workload), PlainMachine(gpu, 1000 * kMega));
}

Bytes AllBytes(const LpTimeline& timeline) {
  Bytes bytes = 0;
  for (const LpInterval& interval : timeline.intervals) bytes += interval.bytes;
  return bytes;
}

TEST(CoarseTimelineTest, AShortOneStaysAsItIs) {
  const LpTimeline fine = Fine(MountainWorkload(), 150 * kMega);
  ASSERT_GT(fine.slots.size(), 2u);
  const LpTimeline same = CoarseTimeline(fine, static_cast<uint32_t>(fine.slots.size()));
  EXPECT_EQ(same.slots.size(), fine.slots.size());
  EXPECT_EQ(same.intervals.size(), fine.intervals.size());
}

TEST(CoarseTimelineTest, KeepsTheTimeAndTheKernelInGreatestNeed) {
  const LpTimeline fine = Fine(Updates(), 120 * kMega);
  for (uint32_t most = 2; most < fine.slots.size(); ++most) {
    const LpTimeline coarse = CoarseTimeline(fine, most);
    ASSERT_LE(coarse.slots.size(), most);
    Nanos sum = 0;
    int64_t need = 0;
    for (const LpSlot& slot : coarse.slots) {
      sum += slot.duration;
      need = std::max(need, slot.need);
    }
    EXPECT_EQ(sum, fine.ideal) << most;
    EXPECT_EQ(coarse.ends.back(), fine.ideal) << most;
    EXPECT_EQ(need, 60'000'000) << most << ": 180 MB are live, 120 fit";
  }
}

// Tensors that come and go between the same points are one; what is away at no point that is left is gone.
TEST(CoarseTimelineTest, JoinsWhatIsUsedAlike) {
  const LpTimeline fine = Fine(Updates(), 120 * kMega);
  ASSERT_EQ(fine.intervals.size(), 8u);
  const LpTimeline coarse = CoarseTimeline(fine, 4);
  EXPECT_LT(coarse.intervals.size(), 8u);
  EXPECT_EQ(AllBytes(coarse), AllBytes(fine)) << "each may be away at the last kernel";
}

// A tensor that is used once lies idle for nearly a round, in slots that are longer than its use for more
// than one.
TEST(CoarseTimelineTest, AnIntervalMayBecomeLongerThanARound) {
  const LpTimeline fine = Fine(Updates(), 120 * kMega);
  const LpTimeline coarse = CoarseTimeline(fine, 3);
  uint32_t over = 0;
  for (const LpInterval& interval : coarse.intervals) {
    Nanos is = coarse.Between(interval.after, interval.before);
    if (interval.away_over_a_round) is += coarse.ideal;
    EXPECT_GE(is, 80 * kMilli) << "8 of 9 kernels do not use it";
    over += interval.away_over_a_round ? 1 : 0;
  }
  EXPECT_GT(over, 0u);
}

TEST(LpTimelineTest, CountsTheRoundsThatAreOpenAtTheLastPoint) {
  LpTimeline timeline;
  timeline.slots.resize(4);
  EXPECT_EQ(timeline.OpenAtLast(0, 2, false), 0u) << "ended";
  EXPECT_EQ(timeline.OpenAtLast(2, 1, false), 1u);
  EXPECT_EQ(timeline.OpenAtLast(3, 1, false), 0u) << "it begins there";
  EXPECT_EQ(timeline.OpenAtLast(1, 3, false), 0u) << "it ends there";
  EXPECT_EQ(timeline.OpenAtLast(1, 1, false), 1u) << "a whole round";
  EXPECT_EQ(timeline.OpenAtLast(1, 2, true), 1u);
  EXPECT_EQ(timeline.OpenAtLast(3, 0, true), 1u) << "that of the round before";
}

}  // namespace
}  // namespace spillway::policy
