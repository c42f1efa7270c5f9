// The search by halving: what it finds, that threads change nothing, and that it looks no farther than it
// must.

#include "integration/cli/estimate/smallest_budget.h"

#include <gtest/gtest.h>

#include <atomic>

namespace spillway::integration {
namespace {

using policy::Bytes;

constexpr BudgetRange kRange = {0, 1 << 20, 1 << 12, 1 << 6};

TEST(SmallestBudgetTest, FindsTheLeastThatIsGoodForAllEnds) {
  Workers workers(1);
  const Bytes found = SmallestBudget(
      kRange, 2, [](Bytes budget, size_t end) { return budget >= (end == 0 ? 100'000 : 300'000); }, &workers);
  EXPECT_GE(found, 300'000u);
  EXPECT_LT(found, 300'000u + kRange.near);
  EXPECT_EQ(found % kRange.unit, 0u);
}

TEST(SmallestBudgetTest, IsTheSameOnAnyNumberOfThreads) {
  for (Bytes least = 1; least < kRange.high; least += 12'345) {
    Bytes first = 0;
    for (const unsigned threads : {1u, 2u, 6u, 16u}) {
      Workers workers(threads);
      const Bytes found = SmallestBudget(
          kRange, 2, [least](Bytes budget, size_t) { return budget >= least; }, &workers);
      if (first == 0) first = found;
      EXPECT_EQ(found, first) << least << " on " << threads;
    }
  }
}

TEST(SmallestBudgetTest, OneThreadLooksAtNothingThatItDoesNotNeed) {
  Workers workers(1);
  std::atomic<int> looks = 0;
  SmallestBudget(
      kRange, 2,
      [&looks](Bytes, size_t) {
        ++looks;
        return false;
      },
      &workers);
  EXPECT_EQ(looks, 8) << "2^20 to 2^12, and the second end is not asked for";
}

TEST(SmallestBudgetTest, WhatIsSmallEnoughIsTheAnswer) {
  Workers workers(2);
  const auto never = [](Bytes, size_t) {
    ADD_FAILURE() << "nothing is to be asked";
    return false;
  };
  EXPECT_EQ(SmallestBudget({0, 4096, 4096, 64}, 1, never, &workers), 4096u);
  EXPECT_EQ(SmallestBudget({64, 128, 1, 64}, 1, never, &workers), 128u) << "no multiple lies between";
}

}  // namespace
}  // namespace spillway::integration
