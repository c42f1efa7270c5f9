#include "integration/report/iteration_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(IterationLogTest, GoesFromMarkToMark) {
  IterationLog log;
  log.Mark(1);
  EXPECT_TRUE(log.Iterations().empty()) << "when the first began is not known";
  log.Mark(1.5);
  log.Mark(3);
  const auto iterations = log.Iterations();
  ASSERT_EQ(iterations.size(), 2u);
  EXPECT_EQ(iterations[1].start_seconds, 1.5);
  EXPECT_EQ(iterations[1].seconds, 1.5);
  EXPECT_EQ(iterations[1].kind, IterationKind::kMarked);
}

TEST(IterationLogTest, KeepsTheLastOnes) {
  IterationLog log(4);
  for (int i = 0; i < 10; ++i) log.Mark(i);
  const auto iterations = log.Iterations();
  ASSERT_EQ(iterations.size(), 4u);
  EXPECT_EQ(iterations.front().start_seconds, 5);
  EXPECT_EQ(iterations.back().start_seconds, 8);
}

// 100 launches an iteration, 50 launches a second.
TEST(IterationLogTest, WithoutMarksLaunchesAreCounted) {
  IterationLog log;
  log.Record({0, 0, 0, 0});
  log.Record({1, 50, 100, 0});  // from here on it is known to repeat
  log.Record({3.5, 175, 100, 0});
  log.Record({8, 400, 100, 0});
  const auto iterations = log.Iterations();
  ASSERT_EQ(iterations.size(), 3u);
  EXPECT_DOUBLE_EQ(iterations[0].start_seconds, 1);
  EXPECT_DOUBLE_EQ(iterations[0].seconds, 2);
  EXPECT_DOUBLE_EQ(iterations[2].start_seconds, 5);
  EXPECT_DOUBLE_EQ(iterations[2].seconds, 2);
  EXPECT_EQ(iterations[2].kind, IterationKind::kRepeated);
}

TEST(IterationLogTest, WhatDepartsFromTheIterationBeginsAnew) {
  IterationLog log;
  log.Record({1, 50, 100, 0});
  log.Record({2, 120, 100, 1});  // something else was done
  log.Record({3, 170, 100, 1});
  EXPECT_TRUE(log.Iterations().empty());
  log.Record({4, 220, 100, 1});
  ASSERT_EQ(log.Iterations().size(), 1u);
  EXPECT_DOUBLE_EQ(log.Iterations()[0].start_seconds, 2);
  log.Record({5, 500, 0, 2});  // nothing repeats any more
  EXPECT_EQ(log.Iterations().size(), 1u);
}

TEST(IterationLogTest, WithMarksNothingIsCounted) {
  IterationLog log;
  log.Mark(0);
  log.Record({1, 50, 100, 0});
  log.Record({9, 450, 100, 0});
  EXPECT_TRUE(log.Iterations().empty());
  log.Mark(9.5);
  EXPECT_EQ(log.Iterations().size(), 1u);
}

}  // namespace
}  // namespace spillway::integration
