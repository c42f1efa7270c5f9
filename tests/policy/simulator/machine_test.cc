#include "policy/simulator/machine.h"

#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(MachineTest, OneDriveIsTheMachinesRates) {
  Machine machine = PlainMachine(1, 1);
  machine.ssd_read = 2e9;
  ASSERT_EQ(DrivesOf(machine).size(), 1u);
  EXPECT_EQ(DrivesOf(machine)[0].read, 2e9);
  EXPECT_EQ(DrivesOf(machine)[0].write, 1e9);
  EXPECT_EQ(RatesTogether(machine).read, 2e9);
  ASSERT_EQ(SharedLimits(machine).size(), 1u);
  EXPECT_DOUBLE_EQ(SharedLimits(machine)[0].per_byte_read, 1 / 2e9);
  EXPECT_DOUBLE_EQ(SharedLimits(machine)[0].per_byte_written, 1 / 1e9);
}

// In one proportion: the sums. One that reads at 3 and writes at 1 and one the other way round: half the
// bytes on each, so that the slow one of each direction limits it to 2 (of 4).
TEST(MachineTest, RatesTogetherAreTheSumsForDrivesInOneProportion) {
  const Drive same = RatesTogether(WithDrives(PlainMachine(1, 1), {{2.4e9, 1.2e9}, {0.8e9, 0.4e9}}));
  EXPECT_NEAR(same.read, 3.2e9, 1);
  EXPECT_NEAR(same.write, 1.6e9, 1);
  const Drive opposite = RatesTogether(WithDrives(PlainMachine(1, 1), {{3e9, 1e9}, {1e9, 3e9}}));
  EXPECT_NEAR(opposite.read, 2e9, 1);
  EXPECT_NEAR(opposite.write, 2e9, 1);
}

// Drives (read 3, write 1) and (1, 3): together they read 4 and write 0, read 3 and write 3, or read 0 and
// write 4. The limits are the lines through these corners: r/4 + w/12 <= 1 and r/12 + w/4 <= 1.
TEST(MachineTest, SharedLimitsAreTheBorderOfWhatDrivesCanDo) {
  const auto limits = SharedLimits(WithDrives(PlainMachine(1, 1), {{3e9, 1e9}, {1e9, 3e9}}));
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_DOUBLE_EQ(limits[0].per_byte_read, 1 / 12e9);
  EXPECT_DOUBLE_EQ(limits[0].per_byte_written, 1 / 4e9);
  EXPECT_DOUBLE_EQ(limits[1].per_byte_read, 1 / 4e9);
  EXPECT_DOUBLE_EQ(limits[1].per_byte_written, 1 / 12e9);
  const auto same = SharedLimits(WithDrives(PlainMachine(1, 1), {{3e9, 3e9}, {1e9, 1e9}}));
  ASSERT_EQ(same.size(), 1u);
  EXPECT_DOUBLE_EQ(same[0].per_byte_read, 1 / 4e9);
}

}  // namespace
}  // namespace spillway::policy
