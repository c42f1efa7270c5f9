#include "policy/trace/kernel_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::policy {
namespace {

uint64_t Kind(uint64_t tag, std::vector<Bytes> bytes) { return KindOf(tag, bytes); }

TEST(KindOfTest, TellsFunctionsSizesAndOrderApart) {
  EXPECT_EQ(Kind(7, {1 << 20, 2 << 20}), Kind(7, {1 << 20, 2 << 20}));
  EXPECT_NE(Kind(7, {1 << 20, 2 << 20}), Kind(8, {1 << 20, 2 << 20}));
  EXPECT_NE(Kind(7, {1 << 20, 2 << 20}), Kind(7, {2 << 20, 1 << 20}));
  EXPECT_NE(Kind(7, {1 << 20}), Kind(7, {1 << 20, 1 << 20}));
  EXPECT_NE(Kind(7, {}), Kind(7, {0}));
}

TEST(KernelTimesTest, TellsPlacesApart) {
  KernelTimes times;
  for (int i = 0; i < 6; ++i) times.Add({1, 20}, 100);
  for (int i = 0; i < 2; ++i) times.Add({1, 30}, 900);
  EXPECT_EQ(times.Of({1, 20}), 100);
  EXPECT_EQ(times.Of({1, 30}), 900);
  EXPECT_EQ(times.SamplesOfPlace({1, 30}), 2u);
  EXPECT_EQ(times.Of({1, 40}), 100);  // never measured there: anywhere
  EXPECT_EQ(times.SamplesOfPlace({1, 40}), 0u);
  EXPECT_EQ(times.SamplesOfKind({1, 40}), 8u);
  EXPECT_EQ(times.Of({1}), 100);
  EXPECT_EQ(times.Of({2, 10}), 0);
  times.Add({1, 50}, 5000);
  EXPECT_EQ(times.Of({1, 50}), times.Of({1})) << "one sample says little of a place";
  times.Add({1, 50}, 7000);
  times.Add({1, 50}, 300);
  EXPECT_EQ(times.Of({1, 50}), 300) << "the first two were disturbed";
}

TEST(KindAtTest, APlaceIsALaunchOnItsBlocksAndTheOneBehindIt) {
  Trace trace;
  const BlockSizes sizes = {{1, 64}, {2, 64}, {3, 64}};
  for (const TraceBlock block : {1, 2, 1, 3}) trace.AddLaunch(7, std::vector<TraceBlock>{block});
  const LaunchKind first = KindAt(trace, 0, 1, sizes), second = KindAt(trace, 1, 2, sizes);
  EXPECT_EQ(first.own, second.own);
  EXPECT_EQ(first.own, Kind(7, {64}));
  EXPECT_NE(first.place, second.place);
  EXPECT_NE(first.place, KindAt(trace, 2, 3, sizes).place);  // another one behind it
  EXPECT_EQ(first.place, KindAt(trace, 2, 1, sizes).place);
  EXPECT_EQ(KindAt(trace, 0, 1, {}).own, Kind(7, {0}));
}

TEST(KernelTimesTest, KnowsNothingAtFirst) {
  const KernelTimes times;
  EXPECT_EQ(times.Of({1}), 0);
  EXPECT_EQ(times.Typical(), 0);
  EXPECT_EQ(times.SamplesOfKind({1}), 0u);
}

TEST(KernelTimesTest, TheFirstSampleCountsAtOnce) {
  KernelTimes times;
  times.Add({1}, 5000);
  EXPECT_EQ(times.Of({1}), 5000);
  EXPECT_EQ(times.Of({2}), 0);
  EXPECT_EQ(times.Typical(), 5000);
}

TEST(KernelTimesTest, OneDelayedLaunchDoesNotCount) {
  KernelTimes times;
  for (const Nanos measured : {1000, 1002, 900'000'000, 998}) times.Add({1}, measured);
  EXPECT_EQ(times.Of({1}), 1000);  // 998 [1000] 1002 900000000
  for (const Nanos measured : {1000, 1004, 1000, 3}) times.Add({1}, measured);
  EXPECT_EQ(times.Of({1}), 1000);  // 3 998 1000 [1000] 1000 1002 1004 900000000
}

TEST(KernelTimesTest, FollowsALastingChange) {
  KernelTimes times;
  for (uint32_t i = 0; i < 100; ++i) times.Add({1}, 1000);
  for (uint32_t i = 0; i < KernelTimes::kSamples; ++i) times.Add({1}, 3000);
  EXPECT_EQ(times.Of({1}), 3000);
  EXPECT_EQ(times.SamplesOfKind({1}), KernelTimes::kSamples);
}

TEST(KernelTimesTest, MeasuredMeansMoreThanNothing) {
  KernelTimes times;
  times.Add({1}, 0);  // shorter than the clock's tick
  EXPECT_EQ(times.Of({1}), 1);
  times.Add({2}, -5);  // a clock that ran backwards
  EXPECT_EQ(times.Of({2}), 0);
  times.Add({3}, INT64_MAX);
  times.Add({3}, INT64_MAX);
  EXPECT_GT(times.Of({3}), 0);
}

TEST(KernelTimesTest, TypicalIsTheMedianOfTheLatestOfAllKinds) {
  KernelTimes times;
  times.Add({1}, 10);
  times.Add({2}, 4000);
  times.Add({3}, 20);
  EXPECT_EQ(times.Typical(), 20);
  for (uint32_t i = 0; i < KernelTimes::kLatest; ++i) times.Add({4}, 70);
  EXPECT_EQ(times.Typical(), 70);
}

TEST(KernelTimesTest, MemoryIsBoundedAndWhatIsStillMeasuredStays) {
  KernelTimes times;
  times.Add({1}, 500);
  times.Add({2}, 500);
  const uint64_t first_of_many = 100;
  for (uint64_t i = 0; i < 4 * KernelTimes::kGeneration; ++i) {
    times.Add({first_of_many + i}, 9);
    if (i % 1000 == 0) times.Add({1}, 700);
    ASSERT_LE(times.kinds(), 2 * KernelTimes::kGeneration);
  }
  EXPECT_EQ(times.Of({1}), 700);
  EXPECT_EQ(times.Of({2}), 0);  // forgotten
  EXPECT_EQ(times.Of({first_of_many + 4 * KernelTimes::kGeneration - 1}), 9);
}

}  // namespace
}  // namespace spillway::policy
