#include "policy/model/headroom.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace spillway::policy {
namespace {

TEST(HeadroomTest, WithoutExpectationsEverythingFits) {
  Headroom headroom;
  EXPECT_FALSE(headroom.known());
  headroom.Add(0, 10, 1000);
  EXPECT_TRUE(headroom.Fits(0, 10, 1000));
  EXPECT_FALSE(Headroom({}, 5, 0, 0).known());
}

// An iteration of three launches from launch 10 on, of a budget of 10.
TEST(HeadroomTest, EveryLaunchUpToTheNeedMustHaveHeadroom) {
  Headroom headroom({2, 8, 4}, 10, 10, 10);
  EXPECT_TRUE(headroom.Fits(10, 11, 8));
  EXPECT_FALSE(headroom.Fits(10, 12, 3));
  EXPECT_TRUE(headroom.Fits(12, 14, 6));  // 12 and, in the next iteration, 13
  EXPECT_FALSE(headroom.Fits(12, 15, 6));
  EXPECT_TRUE(headroom.Fits(12, 12, 1000));  // needed at once: no launch lies between
  headroom.Add(10, 14, 2);
  EXPECT_TRUE(headroom.Fits(12, 13, 4));
  EXPECT_FALSE(headroom.Fits(12, 13, 5));
  EXPECT_TRUE(headroom.Fits(14, 15, 2));
  headroom.Add(12, 14, -2);
  EXPECT_TRUE(headroom.Fits(12, 13, 6));
}

// Against plain sums, while the GPU goes on.
TEST(HeadroomTest, ForgetsWhatLiesBehindAndNothingElse) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    const LaunchIndex start = random() % 20, size = 1 + random() % 9;
    std::vector<int64_t> expected(size);
    for (int64_t& value : expected) value = static_cast<int64_t>(random() % 50);
    Headroom headroom(expected, 100, start, start);
    std::map<LaunchIndex, int64_t> more;
    for (LaunchIndex now = start; now < start + 6 * size; now += random() % 3) {
      headroom.MoveTo(now);
      const LaunchIndex begin = now + random() % size, end = begin + random() % (size + 1);
      int64_t most = 0;
      for (LaunchIndex i = begin; i < end; ++i) most = std::max(most, expected[(i - start) % size] + more[i]);
      const int64_t bytes = static_cast<int64_t>(random() % 100);
      EXPECT_EQ(headroom.Fits(begin, end, static_cast<Bytes>(bytes)), begin == end || most + bytes <= 100);
      const int64_t change = static_cast<int64_t>(random() % 40) - 20;
      headroom.Add(begin, end, change);
      for (LaunchIndex i = begin; i < end; ++i) more[i] += change;
    }
  }
}

}  // namespace
}  // namespace spillway::policy
