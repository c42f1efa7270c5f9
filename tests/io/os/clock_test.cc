#include "io/os/clock.h"

#include <gtest/gtest.h>

#include <chrono>

namespace spillway::os {
namespace {

TEST(ClockTest, NeverGoesBackAndIsTheSteadyClockOfTheSystem) {
  const Clock* const clock = Clock::System();
  EXPECT_EQ(clock, Clock::System());
  const auto system = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
  int64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto before = system();
    const int64_t now = clock->NowNanos();
    EXPECT_GE(now, last);
    EXPECT_LE(before.count(), now);
    EXPECT_LE(now, system().count());
    last = now;
  }
  EXPECT_GE(SteadyClock::now().time_since_epoch().count(), last);
}

}  // namespace
}  // namespace spillway::os
