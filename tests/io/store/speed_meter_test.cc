#include "io/store/speed_meter.h"

#include <gtest/gtest.h>

namespace spillway::io {
namespace {

constexpr uint64_t kRequestBytes = 512 << 10;

// Requests one after the other at a speed, from `now`; returns when the last has ended.
int64_t Serve(SpeedMeter* meter, uint64_t bytes, double bytes_per_second, int64_t now) {
  for (uint64_t done = 0; done < bytes; done += kRequestBytes) {
    meter->Begin(now);
    now += static_cast<int64_t>(kRequestBytes * 1e9 / bytes_per_second);
    meter->End(kRequestBytes, now);
  }
  return now;
}

TEST(SpeedMeterTest, IsKnownFromTheFirstRequestOn) {
  SpeedMeter meter;
  EXPECT_EQ(meter.BytesPerSecond(0), 0);
  const int64_t now = Serve(&meter, kRequestBytes, 2e8, 5);
  EXPECT_NEAR(meter.BytesPerSecond(now), 2e8, 1e5);
}

TEST(SpeedMeterTest, IdleTimeDoesNotCount) {
  SpeedMeter meter;
  int64_t now = 0;
  for (int burst = 0; burst < 3; ++burst) {
    now = Serve(&meter, 8 << 20, 1e9, now) + 600 * os::kSecond;
    EXPECT_NEAR(meter.BytesPerSecond(now), 1e9, 1e6) << burst;
  }
}

TEST(SpeedMeterTest, RequestsAtTheSameTimeCountTheirTimeOnce) {
  SpeedMeter meter;
  for (int i = 0; i < 4; ++i) meter.Begin(0);
  for (int i = 1; i <= 4; ++i) meter.End(kRequestBytes, i * 1'000'000);
  EXPECT_NEAR(meter.BytesPerSecond(9'000'000), 4 * kRequestBytes / 4e-3, 1);
}

TEST(SpeedMeterTest, FollowsADriveThatBecomesSlow) {
  SpeedMeter meter;
  int64_t now = Serve(&meter, 1 << 30, 1e9, 0);
  now = Serve(&meter, 32 << 20, 1e8, now);
  EXPECT_NEAR(meter.BytesPerSecond(now), 1e8, 2e7);
}

TEST(SpeedMeterTest, ADriveThatStandsStillIsSlowAndSoonForgiven) {
  SpeedMeter meter;
  int64_t now = Serve(&meter, 1 << 30, 1e9, 0);
  meter.Begin(now);
  EXPECT_LT(meter.BytesPerSecond(now + os::kSecond), 2e7);
  now += 60 * os::kSecond;
  EXPECT_LT(meter.BytesPerSecond(now), 3e5);
  meter.End(kRequestBytes, now);
  EXPECT_GT(meter.BytesPerSecond(now), 5e7);
  now = Serve(&meter, 128 << 20, 1e9, now);
  EXPECT_GT(meter.BytesPerSecond(now), 8e8);
}

TEST(SpeedMeterTest, ADriveThatHasNeverAnsweredIsSlowAndNotUnknown) {
  SpeedMeter meter;
  meter.Begin(0);
  EXPECT_EQ(meter.BytesPerSecond(1'000'000), 0);
  EXPECT_GT(meter.BytesPerSecond(os::kSecond), 0);
  EXPECT_LT(meter.BytesPerSecond(os::kSecond), 1e6);
}

TEST(SpeedMeterTest, AGuessCountsUntilSomethingIsMeasured) {
  SpeedMeter meter;
  meter.Guess(3e8);
  EXPECT_EQ(meter.BytesPerSecond(0), 3e8);
  meter.Begin(0);
  EXPECT_EQ(meter.BytesPerSecond(1'000'000), 3e8) << "it may still be right";
  EXPECT_LT(meter.BytesPerSecond(os::kSecond), 1e6) << "the drive does not answer";
  meter.End(kRequestBytes, 5'242'880);
  EXPECT_NEAR(meter.BytesPerSecond(5'242'880), 1e8, 1);
  meter.Guess(3e8);
  EXPECT_NEAR(meter.BytesPerSecond(5'242'880), 1e8, 1);
}

TEST(SpeedMeterTest, AFailedRequestMovesNothing) {
  SpeedMeter meter;
  meter.Begin(0);
  meter.End(0, 1000);
  EXPECT_EQ(meter.BytesPerSecond(2000), 0);
}

}  // namespace
}  // namespace spillway::io
