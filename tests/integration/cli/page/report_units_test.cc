#include "integration/cli/page/report_units.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(ReportUnitsTest, ShowsThreeFiguresAndAUnit) {
  EXPECT_EQ(Shown(0, Unit::kBytes), "0 B");
  EXPECT_EQ(Shown(512, Unit::kBytes), "512 B");
  EXPECT_EQ(Shown(1536, Unit::kBytes), "1.50 KiB");
  EXPECT_EQ(Shown(20.0 * (1 << 30), Unit::kBytes), "20.0 GiB");
  EXPECT_EQ(Shown(3.5e15, Unit::kBytes), "3,183 TiB");
  EXPECT_EQ(Shown(22e9, Unit::kBytesPerSecond), "22.0 GB/s");
  EXPECT_EQ(Shown(11.7, Unit::kPercent), "11.7 %");
  EXPECT_EQ(Shown(1234567, Unit::kCount), "1,234,567");
  EXPECT_EQ(Shown(-1234.4, Unit::kCount), "-1,234");
  EXPECT_EQ(Shown(24, Unit::kCount), "24");
  EXPECT_EQ(Shown(2.5, Unit::kCount), "2.50");
  EXPECT_EQ(Shown(7.2e6, Unit::kJoules), "2.00 kWh");
  EXPECT_EQ(Shown(12.345, Unit::kMoney), "12.35");
  EXPECT_EQ(Shown(0.00123, Unit::kMoney), "0.0012");
  EXPECT_EQ(Shown(41.26, Unit::kDays), "41.3 days");
}

TEST(ReportUnitsTest, ShowsTimesFromMicrosecondsToDays) {
  EXPECT_EQ(Shown(0, Unit::kSeconds), "0 s");
  EXPECT_EQ(Shown(0.0000042, Unit::kSeconds), "4.20 µs");
  EXPECT_EQ(Shown(0.0471, Unit::kSeconds), "47.1 ms");
  EXPECT_EQ(Shown(0.9999, Unit::kSeconds), "1.00 s");
  EXPECT_EQ(Shown(119, Unit::kSeconds), "119 s");
  EXPECT_EQ(Shown(125, Unit::kSeconds), "2 min 05 s");
  EXPECT_EQ(Shown(3725, Unit::kSeconds), "1 h 02 min");
  EXPECT_EQ(Shown(90000, Unit::kSeconds), "1 d 01 h");
}

TEST(ReportUnitsTest, AnAxisHasTheUnitOfItsGreatestValue) {
  const AxisUnit memory = AxisUnitFor(3e9, Unit::kBytes);
  EXPECT_EQ(memory.name, "GiB");
  EXPECT_EQ(memory.factor, 0x1p30);
  EXPECT_EQ(AxisUnitFor(0.2, Unit::kSeconds).name, "ms");
  EXPECT_EQ(AxisUnitFor(4000, Unit::kSeconds).name, "s");
  EXPECT_GT(AxisUnitFor(0, Unit::kBytes).factor, 0);  // nothing to draw, but something to divide by
}

}  // namespace
}  // namespace spillway::integration
