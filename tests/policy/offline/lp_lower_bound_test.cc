// Bounds of linear programmes without a solver: by hand-computed programmes, with too little work, and with
// sides that limit nothing.

#include "policy/offline/lp_lower_bound.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace spillway::policy {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// 2 x + 3 y is least, with x + y >= 4, x - y <= 1 and x, y in [0, 10]: at x = 2.5, y = 1.5.
LpProblem TwoColumns() {
  LpProblem problem;
  problem.cost = {2, 3};
  problem.lower = {0, 0};
  problem.upper = {10, 10};
  LpSum sum;
  sum.Add(0, 1).Add(1, 1).EndRow(&problem, 4, kInfinite);
  sum.Add(0, 1).Add(1, -1).EndRow(&problem, -kInfinite, 1);
  return problem;
}

LowerBoundOptions Options(double enough = 1e9, uint64_t work = 10'000'000) {
  LowerBoundOptions options;
  options.enough = enough;
  options.near = 1e-6;
  options.work = work;
  return options;
}

TEST(FindLowerBoundTest, ComesNearTheBestValueAndSaysSo) {
  const LowerBound found = FindLowerBound(TwoColumns(), Options());
  EXPECT_TRUE(found.is_near);
  EXPECT_LE(found.value, 9.5 + 1e-9);
  EXPECT_NEAR(found.value, 9.5, 1e-4);
  EXPECT_LT(found.work, 10'000'000u);
}

TEST(FindLowerBoundTest, LittleWorkGivesALowerBoundAllTheSame) {
  for (uint64_t work = 2000; work < 50'000; work += 2000) {
    const LowerBound found = FindLowerBound(TwoColumns(), Options(1e9, work));
    EXPECT_LE(found.value, 9.5 + 1e-9) << work;
  }
  const LowerBound none = FindLowerBound(TwoColumns(), Options(1e9, 1));
  EXPECT_FALSE(none.is_near);
  EXPECT_LE(none.value, 9.5);
}

// A chain of stores, of which the last must hold 100. Each gets the content of the one before, 1 by its link,
// and purchases at a price of 1. The links' part need not be bought.
LpProblem Chain(int steps) {
  LpProblem problem;
  const auto column = [&problem](double upper, double cost) {
    problem.cost.push_back(cost);
    problem.lower.push_back(0);
    problem.upper.push_back(upper);
    return static_cast<int>(problem.cost.size()) - 1;
  };
  int store = -1;
  LpSum sum;
  for (int i = 0; i < steps; ++i) {
    const int next = column(1000, 0), moved = column(1, 0), bought = column(1000, 1);
    sum.Add(next, -1).Add(store, 1).Add(moved, 1).Add(bought, 1).EndRow(&problem, 0, 0);
    store = next;
  }
  problem.lower[static_cast<size_t>(store)] = 100;
  return problem;
}

TEST(FindLowerBoundTest, ALongChainIsFoundToo) {
  const LowerBound found = FindLowerBound(Chain(40), Options(1e9, 200'000'000));
  EXPECT_TRUE(found.is_near);
  EXPECT_NEAR(found.value, 60, 0.01);
  EXPECT_LE(found.value, 60 + 1e-6);
}

TEST(FindLowerBoundTest, EndsWhereTheBoundIsEnough) {
  const LowerBound whole = FindLowerBound(Chain(40), Options(1e9, 200'000'000));
  const LowerBound part = FindLowerBound(Chain(40), Options(30, 200'000'000));
  EXPECT_TRUE(part.is_near);
  EXPECT_GE(part.value, 30);
  EXPECT_LT(part.work, whole.work);
}

// Equations of random entries with a solution that is known: no bound is above its cost.
TEST(FindLowerBoundTest, IsNeverAboveTheCostOfASolution) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t n) { return static_cast<double>(random() % n); };
    LpProblem problem;
    std::vector<double> solution;
    double cost = 0;
    for (int j = 0; j < 12; ++j) {
      solution.push_back(below(5));
      problem.cost.push_back(below(9) - 3);
      problem.lower.push_back(0);
      problem.upper.push_back(4 + below(3));
      cost += problem.cost.back() * solution.back();
    }
    for (int i = 0; i < 6; ++i) {
      LpSum sum;
      double is = 0;
      for (int j = 0; j < 12; ++j) {
        if (random() % 2 == 0) continue;
        const double value = below(7) - 3;
        sum.Add(j, value);
        is += value * solution[static_cast<size_t>(j)];
      }
      const bool open_below = random() % 3 == 0, open_above = !open_below && random() % 3 == 0;
      sum.EndRow(&problem, open_below ? -kInfinite : is - below(2), open_above ? kInfinite : is + below(2));
    }
    for (const uint64_t work : {uint64_t{20'000}, uint64_t{2'000'000}}) {
      EXPECT_LE(FindLowerBound(problem, Options(1e9, work)).value, cost + 1e-6) << seed << ", " << work;
    }
  }
}

TEST(FindLowerBoundTest, SameInputSameBits) {
  EXPECT_EQ(FindLowerBound(TwoColumns(), Options()).value, FindLowerBound(TwoColumns(), Options()).value);
}

}  // namespace
}  // namespace spillway::policy
