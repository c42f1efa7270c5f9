#include "io/os/check.h"

#include <gtest/gtest.h>

namespace spillway::os {
namespace {

TEST(CheckDeathTest, AWrongConditionIsNamedWithItsPlace) {
  EXPECT_DEATH(SPILLWAY_CHECK(1 + 1 == 3), "spillway: CHECK failed at .*check_test.cc:[0-9]+: 1 \\+ 1 == 3");
}

TEST(CheckDeathTest, ALongConditionIsCut) {
  const std::string condition(2000, 'x');
  EXPECT_DEATH(CheckFailed("a.cc", 1, condition.c_str()), "a.cc:1: x{100}");
}

TEST(CheckTest, ARightConditionIsLookedAtOnce) {
  int looks = 0;
  SPILLWAY_CHECK(++looks == 1);
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace spillway::os
