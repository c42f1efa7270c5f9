#include "io/stripe.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace spillway::io {
namespace {

TEST(StripeTest, TakesTheDirectoryThatWouldBeDoneFirst) {
  std::vector<DirectoryLoad> loads(2);
  loads[0] = {.queued_bytes = 30, .bytes_per_second = 3, .free_slots = 5, .usable = true};
  loads[1] = {.queued_bytes = 20, .bytes_per_second = 1, .free_slots = 5, .usable = true};
  EXPECT_EQ(PickDirectory(loads, 3), 0u);
  loads[0].free_slots = 0;
  EXPECT_EQ(PickDirectory(loads, 3), 1u);
  loads[1].usable = false;
  EXPECT_FALSE(PickDirectory(loads, 3).has_value());
  EXPECT_FALSE(PickDirectory({}, 3).has_value());
}

TEST(StripeTest, SharesBySpeedAndTreatsTheUnmeasuredAsFast) {
  std::vector<DirectoryLoad> loads(3);
  loads[0] = {.queued_bytes = 0, .bytes_per_second = 4e9, .free_slots = 1000, .usable = true};
  loads[1] = {.queued_bytes = 0, .bytes_per_second = 1e9, .free_slots = 1000, .usable = true};
  loads[2] = {.queued_bytes = 0, .bytes_per_second = 0, .free_slots = 1000, .usable = true};
  std::map<size_t, int> share;
  for (int i = 0; i < 900; ++i) {
    const size_t chosen = PickDirectory(loads, 2 << 20).value();
    loads[chosen].queued_bytes += 2 << 20;
    ++share[chosen];
  }
  EXPECT_NEAR(share[0], 400, 2);
  EXPECT_NEAR(share[1], 100, 2);
  EXPECT_NEAR(share[2], 400, 2);
}

}  // namespace
}  // namespace spillway::io
