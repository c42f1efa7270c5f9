#include "integration/engine/step_meter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway::integration {
namespace {

// 10 launches a step, 2 s each, from second 100 on; each step brings 300 bytes back and waits 0.1 s for room.
allocator::ResidencyStats AfterSteps(double steps) {
  allocator::ResidencyStats stats;
  stats.launches = 1000 + static_cast<uint64_t>(steps * 10);
  stats.fetched_bytes = stats.disk_fetched_bytes = 5000 + static_cast<uint64_t>(steps * 300);
  stats.stall_room_nanos = static_cast<uint64_t>(steps * 1e8);
  return stats;
}

TEST(StepMeterTest, KnowsNothingBeforeThreeSteps) {
  StepMeter meter;
  EXPECT_EQ(meter.Steady().steps, 0);
  for (int i = 0; i <= 2; ++i) meter.Look(100 + 2 * i, 10, 0, AfterSteps(i));
  EXPECT_EQ(meter.Steady().steps, 0);
  meter.Look(106, 10, 0, AfterSteps(3));
  EXPECT_DOUBLE_EQ(meter.Steady().steps, 3);
  EXPECT_DOUBLE_EQ(meter.Steady().step_seconds, 2);
}

TEST(StepMeterTest, DividesWhatGrewByTheSteps) {
  StepMeter meter;
  for (int i = 0; i <= 20; ++i) meter.Look(100 + i, 10, 0, AfterSteps(i / 2.0));
  const SteadySteps steady = meter.Steady();
  EXPECT_DOUBLE_EQ(steady.step_seconds, 2);
  EXPECT_EQ(steady.per_step.fetched_bytes, 300u);
  EXPECT_EQ(steady.per_step.disk_fetched_bytes, 300u);
  EXPECT_EQ(steady.per_step.stall_room_nanos, 100'000'000u);
  EXPECT_EQ(steady.steps, std::floor(steady.steps)) << "whole steps where the looks allow it";
}

TEST(StepMeterTest, AStretchEndsWhereTheJobDoesSomethingElse) {
  StepMeter meter;
  for (int i = 0; i <= 10; ++i) meter.Look(100 + 2 * i, 10, 0, AfterSteps(i));
  // Five slow launches of something else, then the same step again, at half the speed.
  meter.Look(200, 0, 1, AfterSteps(10.5));
  EXPECT_DOUBLE_EQ(meter.Steady().step_seconds, 2) << "that of before";
  for (int i = 0; i <= 20; ++i) meter.Look(200 + 4 * i, 10, 1, AfterSteps(10.5 + i));
  EXPECT_DOUBLE_EQ(meter.Steady().step_seconds, 4);
}

TEST(StepMeterTest, LongJobsKeepFewLooks) {
  StepMeter meter;
  for (int i = 0; i <= 10'000; ++i) meter.Look(100 + 0.25 * i, 10, 0, AfterSteps(i / 8.0));
  EXPECT_NEAR(meter.Steady().step_seconds, 2, 0.01);
  EXPECT_GE(meter.Steady().steps, 500);
}

}  // namespace
}  // namespace spillway::integration
