#include "integration/settings/setting_limits.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

constexpr Size Bytes(uint64_t bytes) { return {bytes, 0}; }
constexpr Size Share(double percent) { return {0, percent}; }

TEST(LimitedSizeTest, TheSmallerOfAKindCounts) {
  EXPECT_EQ(LimitedSize(Bytes(10), Bytes(4)), Bytes(4));
  EXPECT_EQ(LimitedSize(Bytes(4), Bytes(10)), Bytes(4));
  EXPECT_EQ(LimitedSize(Share(60), Share(50)), Share(50));
  EXPECT_EQ(LimitedSize(Share(40), Share(50)), Share(40));
  EXPECT_EQ(LimitedSize(Bytes(10), std::nullopt), Bytes(10));
  EXPECT_EQ(LimitedSize(Bytes(10), Bytes(0)), Bytes(0));
}

TEST(LimitedSizeTest, DifferentKindsWaitUntilTheWholeIsKnown) {
  EXPECT_EQ(LimitedSize(Bytes(10), Share(50)), Bytes(10));
  EXPECT_EQ(LimitedSize(Share(50), Bytes(10)), Share(50));
  EXPECT_EQ(Limited(80, Share(50), 100), 50u);
  EXPECT_EQ(Limited(30, Share(50), 100), 30u);
  EXPECT_EQ(Limited(30, std::nullopt, 100), 30u);
  EXPECT_EQ(Limited(30, Bytes(10), 100), 10u);
}

using std::chrono::hours;

TEST(LimitedWritesTest, NeitherMoreAtOnceNorFasterThanEither) {
  const WriteLimit limit = {2000, hours(24)};
  EXPECT_EQ(LimitedWrites(std::nullopt, limit), limit);
  EXPECT_EQ(LimitedWrites(limit, std::nullopt), limit);
  EXPECT_EQ(LimitedWrites(std::nullopt, std::nullopt), std::nullopt);
  EXPECT_EQ(LimitedWrites(WriteLimit{100, hours(24)}, limit), (WriteLimit{100, hours(24)}));
  EXPECT_EQ(LimitedWrites(WriteLimit{4000, hours(24)}, limit), limit);
  EXPECT_EQ(LimitedWrites(WriteLimit{1000, hours(1)}, limit), (WriteLimit{1000, hours(12)}))
      << "as fast as the limit";
  EXPECT_EQ(LimitedWrites(WriteLimit{4000, hours(480)}, limit), (WriteLimit{2000, hours(240)}))
      << "as much at once";
}

TEST(LimitedWritesTest, NothingStaysNothing) {
  const WriteLimit nothing = {0, hours(24)}, some = {10, hours(24)};
  EXPECT_EQ(LimitedWrites(nothing, some), nothing);
  EXPECT_EQ(LimitedWrites(some, nothing), nothing);
}

}  // namespace
}  // namespace spillway::integration
