#include "policy/model/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(ToTicksTest, TimesAreWholeTicksAndNeverNone) {
  EXPECT_EQ(ToTicks(0), 2);
  EXPECT_EQ(ToTicks(2), 2);
  EXPECT_EQ(ToTicks(2.1), 4);
  EXPECT_EQ(ToTicks(101), 102);
}

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

Machine LinkOf(double in_both, double out_both) {
  Machine machine = PlainMachine(1, 1);
  machine.pcie_in = 25e9;
  machine.pcie_out = 20e9;
  machine.pcie_both = {in_both, out_both};
  return machine;
}

TEST(MachineTest, IndependentDirectionsHaveNoCommonLimit) {
  EXPECT_FALSE(DirectionsShare(LinkOf(0, 0)));
  EXPECT_TRUE(LinkIsPossible(LinkOf(0, 0)));
  EXPECT_TRUE(LinkLimits(LinkOf(0, 0)).empty());
  const LinkRates parts = LinkParts(LinkOf(0, 0), {1, 1});
  EXPECT_EQ(parts.in, 1);
  EXPECT_EQ(parts.out, 1);
}

TEST(MachineTest, RatesTogetherLieBetweenTakingTurnsAndNoLoss) {
  EXPECT_TRUE(LinkIsPossible(LinkOf(25e9, 20e9)));
  EXPECT_TRUE(LinkIsPossible(LinkOf(12.5e9, 10e9)));
  EXPECT_FALSE(LinkIsPossible(LinkOf(12e9, 10e9)));
  EXPECT_FALSE(LinkIsPossible(LinkOf(26e9, 10e9)));
  EXPECT_FALSE(LinkIsPossible(LinkOf(25e9, 0)));
  EXPECT_FALSE(LinkIsPossible(LinkOf(-1e9, 30e9)));
  for (const LinkRates& measured :
       {LinkRates{30e9, 5e9}, {1e9, 1e9}, {5e9, 20e9}, {25e9, 20e9}, {3e9, 17.6e9}}) {
    Machine machine = LinkOf(0, 0);
    machine.pcie_both = PossibleTogether(machine, measured);
    EXPECT_TRUE(LinkIsPossible(machine)) << measured.in << ", " << measured.out;
  }
  EXPECT_EQ(PossibleTogether(LinkOf(0, 0), {0, 5e9}).out, 0);
  EXPECT_DOUBLE_EQ(PossibleTogether(LinkOf(0, 0), {12e9, 19e9}).in, 12e9);
}

// The rate left to one direction beside the other lies on the border: both limits hold, and one is reached.
TEST(MachineTest, ADirectionThatWantsLittleLeavesTheRest) {
  const Machine machine = LinkOf(0.45 * 25e9, 0.98 * 20e9);
  const std::vector<SharedLimit> limits = LinkLimits(machine);
  ASSERT_EQ(limits.size(), 2u);
  for (double in = 0; in <= 1; in += 0.05) {
    for (double out = 0; out <= 1; out += 0.05) {
      const LinkRates parts = LinkParts(machine, {in, out});
      double most = 0;
      for (const SharedLimit& limit : limits) {
        most =
            std::max(most, parts.in * 25e9 * limit.per_byte_read + parts.out * 20e9 * limit.per_byte_written);
      }
      EXPECT_LE(most, 1 + 1e-12) << in << ", " << out;
      EXPECT_LE(parts.in, in);
      EXPECT_LE(parts.out, out);
      const bool limited = parts.in < in || parts.out < out;
      EXPECT_GE(most, limited ? 1 - 1e-12 : 0) << in << ", " << out;
    }
  }
  EXPECT_NEAR(LinkParts(machine, {1, 1}).in, 0.45, 1e-12);
  EXPECT_NEAR(LinkParts(machine, {1, 1}).out, 0.98, 1e-12);
  EXPECT_NEAR(LinkParts(machine, {1, 0.49}).in, 0.725, 1e-12);
}

}  // namespace
}  // namespace spillway::policy
