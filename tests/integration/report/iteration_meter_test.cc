#include "integration/report/iteration_meter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway::integration {
namespace {

// 10 launches an iteration, 2 s each, from second 100 on. Each brings 300 bytes back and waits 0.1 s for
// chunks.
allocator::ResidencyStats AfterIterations(double iterations) {
  allocator::ResidencyStats stats;
  stats.launches = 1000 + static_cast<uint64_t>(iterations * 10);
  stats.fetched_bytes = stats.disk_fetched_bytes = 5000 + static_cast<uint64_t>(iterations * 300);
  stats.stall_chunks_nanos = static_cast<uint64_t>(iterations * 1e8);
  return stats;
}

TEST(IterationMeterTest, KnowsNothingBeforeThreeIterations) {
  IterationMeter meter;
  EXPECT_EQ(meter.Steady().iterations, 0);
  for (int i = 0; i <= 2; ++i) meter.Sample(100 + 2 * i, 10, 0, AfterIterations(i));
  EXPECT_EQ(meter.Steady().iterations, 0);
  meter.Sample(106, 10, 0, AfterIterations(3));
  EXPECT_DOUBLE_EQ(meter.Steady().iterations, 3);
  EXPECT_DOUBLE_EQ(meter.Steady().iteration_seconds, 2);
}

TEST(IterationMeterTest, DividesWhatGrewByTheIterations) {
  IterationMeter meter;
  for (int i = 0; i <= 20; ++i) meter.Sample(100 + i, 10, 0, AfterIterations(i / 2.0));
  const SteadyIterations steady = meter.Steady();
  EXPECT_DOUBLE_EQ(steady.iteration_seconds, 2);
  EXPECT_EQ(steady.per_iteration.fetched_bytes, 300u);
  EXPECT_EQ(steady.per_iteration.disk_fetched_bytes, 300u);
  EXPECT_EQ(steady.per_iteration.stall_chunks_nanos, 100'000'000u);
  EXPECT_EQ(steady.iterations, std::floor(steady.iterations)) << "whole iterations where the looks allow it";
}

TEST(IterationMeterTest, AStretchEndsWhereTheJobDoesSomethingElse) {
  IterationMeter meter;
  for (int i = 0; i <= 10; ++i) meter.Sample(100 + 2 * i, 10, 0, AfterIterations(i));
  // Five slow launches of something else, then the same iteration again, at half the speed.
  meter.Sample(200, 0, 1, AfterIterations(10.5));
  EXPECT_DOUBLE_EQ(meter.Steady().iteration_seconds, 2) << "that of before";
  for (int i = 0; i <= 20; ++i) meter.Sample(200 + 4 * i, 10, 1, AfterIterations(10.5 + i));
  EXPECT_DOUBLE_EQ(meter.Steady().iteration_seconds, 4);
}

TEST(IterationMeterTest, AJobThatLaunchesNothingMoreIsNotSlower) {
  IterationMeter meter;
  for (int i = 0; i <= 10; ++i) meter.Sample(100 + 2 * i, 10, 0, AfterIterations(i));
  for (int i = 1; i <= 5; ++i) meter.Sample(120 + 3 * i, 10, 0, AfterIterations(10));
  EXPECT_DOUBLE_EQ(meter.Steady().iteration_seconds, 2);
  // It was a pause of the job's own: that belongs to its iterations.
  meter.Sample(137, 10, 0, AfterIterations(11));
  EXPECT_GT(meter.Steady().iteration_seconds, 2.5);
}

TEST(IterationMeterTest, LongJobsKeepFewLooks) {
  IterationMeter meter;
  for (int i = 0; i <= 10'000; ++i) meter.Sample(100 + 0.25 * i, 10, 0, AfterIterations(i / 8.0));
  EXPECT_NEAR(meter.Steady().iteration_seconds, 2, 0.01);
  EXPECT_GE(meter.Steady().iterations, 500);
}

}  // namespace
}  // namespace spillway::integration
