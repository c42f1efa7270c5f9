#include "integration/cli/common/quantities.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(QuantitiesTest, UnitsOfTwoAndOfTen) {
  EXPECT_EQ(*ParseQuantity("40GiB"), 40 * 0x1p30);
  EXPECT_EQ(*ParseQuantity("128GB"), 128e9);
  EXPECT_EQ(*ParseQuantity("15.754e9"), 15.754e9);
  EXPECT_EQ(*ParseQuantity("3.2gb/s"), 3.2e9);
  EXPECT_EQ(*ParseQuantity("0"), 0);
}

TEST(QuantitiesTest, OtherTextsAreRefused) {
  for (const char* text : {"", "GiB", "-1", "1 GiB", "1e30", "nan", "4Gibit"})
    EXPECT_FALSE(ParseQuantity(text).ok()) << text;
}

TEST(QuantitiesTest, ASizeIsNoRate) {
  policy::Bytes bytes = 0;
  EXPECT_TRUE(ReadSize("gpu-memory", "2KiB", &bytes).ok());
  EXPECT_EQ(bytes, 2048u);
  EXPECT_EQ(ReadSize("gpu-memory", "2GB/s", &bytes).message(),
            "gpu-memory=2GB/s is invalid; expected: bytes, for example 40GiB, 128GB, 0");
}

TEST(QuantitiesTest, ARateIsAtLeastAMegabyteASecond) {
  double rate = 0;
  EXPECT_TRUE(ReadRate("pcie", "1e6", &rate).ok());
  EXPECT_EQ(rate, 1e6);
  EXPECT_EQ(ReadRate("pcie", "1e5", &rate).message(),
            "pcie=1e5 is invalid; expected: bytes/s, at least 1e6, for example 15.754e9, 3.2GB/s");
}

}  // namespace
}  // namespace spillway::integration
