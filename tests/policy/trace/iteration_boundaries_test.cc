#include "policy/trace/iteration_boundaries.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::policy {
namespace {

// Indices at which an iteration was said to begin.
std::vector<LaunchIndex> Boundaries(IterationBoundaries* iterations, const std::vector<uint64_t>& launches,
                                    LaunchIndex first = 0) {
  std::vector<LaunchIndex> at;
  for (size_t i = 0; i < launches.size(); ++i) {
    if (iterations->Add(first + i, launches[i], false)) at.push_back(first + i);
  }
  return at;
}

TEST(IterationBoundariesTest, MarksCountAndNothingElseOnceThereAreAny) {
  IterationBoundaries iterations(1000);
  EXPECT_FALSE(iterations.marked());
  EXPECT_TRUE(iterations.Add(0, 1, true));
  EXPECT_TRUE(iterations.marked());
  for (LaunchIndex i = 1; i < 100; ++i) EXPECT_FALSE(iterations.Add(i, i % 10, false));
  EXPECT_TRUE(iterations.Add(100, 5, true));
  iterations.Restart();
  EXPECT_TRUE(iterations.marked());
}

TEST(IterationBoundariesTest, WithoutMarksALaunchThatComesOnceAnIteration) {
  // Launches 1 2 3, four times 4 5, then 6; every iteration the same.
  const std::vector<uint64_t> iteration = {1, 2, 3, 4, 5, 4, 5, 4, 5, 4, 5, 6};
  std::vector<uint64_t> launches;
  for (int i = 0; i < 8; ++i) launches.insert(launches.end(), iteration.begin(), iteration.end());
  IterationBoundaries iterations(1000);
  const auto at = Boundaries(&iterations, launches);
  EXPECT_EQ(at, (std::vector<LaunchIndex>{60, 72, 84}));  // 4 and 5 come unevenly
}

TEST(IterationBoundariesTest, WhatComesInSomeIterationsOnlyIsNotIt) {
  // Three kinds of iterations in a row without order; 9 ends all of them.
  const std::vector<std::vector<uint64_t>> kinds = {{10, 11, 12, 9}, {20, 21, 22, 23, 9}, {30, 31, 32, 9}};
  std::vector<uint64_t> launches;
  std::vector<LaunchIndex> ends;
  for (const int kind : {0, 1, 2, 0, 0, 2, 1, 1, 0, 2, 0, 1, 2, 2, 0}) {
    launches.insert(launches.end(), kinds[kind].begin(), kinds[kind].end());
    ends.push_back(launches.size() - 1);
  }
  IterationBoundaries iterations(1000);
  const auto at = Boundaries(&iterations, launches);
  EXPECT_EQ(at, std::vector<LaunchIndex>(ends.begin() + 5, ends.end()));
}

TEST(IterationBoundariesTest, ALaunchThatComesNoMoreGivesWay) {
  IterationBoundaries iterations(1000);
  std::vector<uint64_t> launches;
  for (int i = 0; i < 10; ++i) launches.insert(launches.end(), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_FALSE(Boundaries(&iterations, launches).empty());
  launches.clear();
  for (int i = 0; i < 20; ++i) launches.insert(launches.end(), {51, 52, 53, 54});
  EXPECT_FALSE(Boundaries(&iterations, launches, 100).empty());
}

TEST(IterationBoundariesTest, LaunchesTooFarApartAreNoIterations) {
  IterationBoundaries iterations(5);
  std::vector<uint64_t> launches;
  for (int i = 0; i < 20; ++i) launches.insert(launches.end(), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_TRUE(Boundaries(&iterations, launches).empty());
}

}  // namespace
}  // namespace spillway::policy
