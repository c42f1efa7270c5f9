#include "allocator/tier/transfer_meters.h"

#include <gtest/gtest.h>

#include "tests/sizes.h"

namespace spillway::allocator {
namespace {

TEST(CopyQueueMeterTest, CountsBusyTimeOnly) {
  CopyQueueMeter meter;
  meter.Begin(0);
  meter.End(1 << 20, 1'000'000);
  EXPECT_EQ(meter.rate(), 0) << "too little to say";
  meter.Begin(1'000'000'000);  // nothing to do for a second
  meter.Begin(1'000'000'000);
  meter.End(2 << 20, 1'002'000'000);
  meter.End(1 << 20, 1'003'000'000);
  EXPECT_NEAR(meter.rate(), 4.0 * (1 << 20) / 0.004, 1);
}

TEST(CopyQueueMeterTest, FollowsAChange) {
  CopyQueueMeter meter;
  int64_t now = 0;
  for (int i = 0; i < 40; ++i) {
    const int64_t nanos = i < 10 ? 1'000'000 : 4'000'000;
    meter.Begin(now);
    meter.End(16 << 20, now += nanos);
  }
  EXPECT_NEAR(meter.rate(), 16.0 * (1 << 20) / 0.004, 0.01 * 16 * (1 << 20) / 0.004);
}

// ---- What the meter of a link says of transfers, before and after the link was measured.

constexpr auto kIn = LinkDirection::kIn;
constexpr auto kOut = LinkDirection::kOut;

TEST(LinkMeterTest, CountsBusyTimeOnly) {
  LinkMeter meter;
  meter.Begin(kOut, 0);
  meter.End(kOut, kMiB, 1'000'000);
  EXPECT_EQ(meter.rates().alone.out, 0) << "too little to say";
  meter.Begin(kOut, 1'000'000'000);  // nothing to do for a second
  meter.Begin(kOut, 1'000'000'000);
  meter.End(kOut, 2 * kMiB, 1'002'000'000);
  meter.End(kOut, kMiB, 1'003'000'000);
  EXPECT_NEAR(meter.rates().alone.out, 4.0 * kMiB / 0.004, 1);
  EXPECT_EQ(meter.rates().alone.in, 0);
  EXPECT_EQ(meter.rates().both.out, 0) << "not measured";
  EXPECT_FALSE(meter.measured());
}

// Transfers at 10e9 alone and 6e9 beside the other direction: whatever part of the time both run, the meter
// that knows the loss says 10e9 and 6e9; the one that does not says something between.
TEST(LinkMeterTest, TheOtherDirectionIsTakenOut) {
  for (const int beside : {0, 3, 10}) {  // tenths of the time during which both run
    LinkMeter knows, blind;
    knows.SetMeasured({20e9, 20e9}, {12e9, 15e9});
    int64_t now = 0;
    for (int i = 0; i < 60; ++i) {
      const int64_t both = 1'000'000 * beside, alone = 10'000'000 - both;
      const uint64_t bytes = static_cast<uint64_t>(both * 6 + alone * 10);
      for (LinkMeter* meter : {&knows, &blind}) {
        meter->Begin(kIn, now);
        if (beside > 0) meter->Begin(kOut, now);
        if (beside > 0) meter->End(kOut, 0, now + both);
        meter->End(kIn, bytes, now + both + alone);
      }
      now += 20'000'000;
    }
    EXPECT_NEAR(knows.rates().alone.in, 10e9, 0.01e9) << beside;
    EXPECT_NEAR(knows.rates().both.in, 6e9, 0.01e9) << beside;
    EXPECT_NEAR(blind.rates().alone.in, 10e9 - 0.4e9 * beside, 0.01e9) << beside;
  }
}

TEST(LinkMeterTest, BeforeAnythingMovedTheMeasurementSpeaks) {
  LinkMeter meter;
  meter.SetMeasured({25e9, 24e9}, {12e9, 23e9});
  EXPECT_DOUBLE_EQ(meter.rates().alone.in, 25e9);
  EXPECT_DOUBLE_EQ(meter.rates().both.in, 12e9);
  EXPECT_DOUBLE_EQ(meter.rates().both.out, 23e9);
  EXPECT_EQ(meter.OwnRate(kIn), 0);
  EXPECT_FALSE(meter.busy(kIn));
  meter.Begin(kIn, 5);
  EXPECT_TRUE(meter.busy(kIn));
}

// The thread that looks for ends does other things meanwhile: of 16 copies that took 40 ms it sees all ends at
// once.
TEST(LinkMeterTest, EndsThatAreSeenInBurstsAreNoFasterForThat) {
  LinkMeter meter;
  int64_t now = 0;
  for (int burst = 0; burst < 20; ++burst) {
    for (int i = 0; i < 16; ++i) meter.Begin(kIn, now += 1000);
    now += 40'000'000;
    for (int i = 0; i < 16; ++i) meter.End(kIn, 4 * kMiB, now += 1000);
    if (burst == 0) continue;
    EXPECT_NEAR(meter.rates().alone.in, 64.0 * kMiB / 0.04, 0.05 * 64 * kMiB / 0.04) << burst;
  }
}

TEST(LinkMeterTest, FollowsAChange) {
  LinkMeter meter;
  int64_t now = 0;
  for (int i = 0; i < 40; ++i) {
    const int64_t nanos = i < 10 ? 1'000'000 : 4'000'000;
    meter.Begin(kIn, now);
    meter.End(kIn, 16 * kMiB, now += nanos);
  }
  EXPECT_NEAR(meter.rates().alone.in, 16.0 * kMiB / 0.004, 0.01 * 16 * kMiB / 0.004);
}

}  // namespace
}  // namespace spillway::allocator
