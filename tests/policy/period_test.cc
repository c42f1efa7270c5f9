#include "policy/period.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

// Feeds launches with one block each, as letters, and answers with the first period found and when.
struct Feeder {
  explicit Feeder(const PeriodOptions& options = PeriodOptions()) : finder(options) {}

  uint32_t Add(uint64_t letter) {
    trace.AddLaunch(letter, std::vector<TraceBlock>{letter});
    return finder.Add(trace, trace.end() - 1);
  }
  // Stops at the first period.
  uint32_t Add(const std::vector<uint64_t>& letters) {
    for (const uint64_t letter : letters) {
      if (const uint32_t period = Add(letter)) return period;
    }
    return 0;
  }
  Trace trace;
  PeriodFinder finder;
};

std::vector<uint64_t> Step(uint64_t first, size_t launches) {
  std::vector<uint64_t> step;
  for (size_t i = 0; i < launches; ++i) step.push_back(first + i);
  return step;
}

TEST(PeriodFinderTest, FindsAStepAtTheEndOfItsSecondRun) {
  for (const size_t launches : {2u, 3u, 5u, 100u, 3000u}) {
    Feeder feeder;
    feeder.Add(Step(1000000, 37));  // set-up that never comes again
    const std::vector<uint64_t> step = Step(0, launches);
    EXPECT_EQ(feeder.Add(step), 0u);
    const uint64_t before = feeder.trace.end();
    EXPECT_EQ(feeder.Add(step), launches);
    EXPECT_EQ(feeder.trace.end() - before, launches);
  }
}

TEST(PeriodFinderTest, FindsAStepOfAHundredThousandLaunches) {
  Feeder feeder;
  const std::vector<uint64_t> step = Step(0, 100000);
  EXPECT_EQ(feeder.Add(step), 0u);
  EXPECT_EQ(feeder.Add(step), 100000u);
}

TEST(PeriodFinderTest, FindsAStepInWhichEveryLaunchComesTwice) {
  Feeder feeder({.shortest = 3});
  std::vector<uint64_t> step;
  for (uint64_t i = 0; i < 50; ++i) step.insert(step.end(), {i, i});
  EXPECT_EQ(feeder.Add(step), 0u);
  EXPECT_EQ(feeder.Add(step), 100u);
}

TEST(PeriodFinderTest, FindsNothingWhenOneLaunchDiffers) {
  Feeder feeder;
  std::vector<uint64_t> step = Step(0, 40);
  EXPECT_EQ(feeder.Add(step), 0u);
  step[39] = 4000;
  EXPECT_EQ(feeder.Add(step), 0u);
}

TEST(PeriodFinderTest, BlocksCountAndTagsCount) {
  Trace trace;
  PeriodFinder finder({.shortest = 2});
  uint32_t found = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    // The same tags for ever, but one block moves on each time round.
    trace.AddLaunch(i % 4, std::vector<TraceBlock>{i % 4 == 3 ? i : i % 4});
    found |= finder.Add(trace, i);
  }
  EXPECT_EQ(found, 0u);
}

TEST(PeriodFinderTest, GrowsPastEqualMicroBatches) {
  // Four equal micro-batches and an optimiser: M M M M O.
  const std::vector<uint64_t> micro = Step(0, 20);
  std::vector<uint64_t> step;
  for (int i = 0; i < 4; ++i) step.insert(step.end(), micro.begin(), micro.end());
  const std::vector<uint64_t> optimizer = Step(500, 7);
  step.insert(step.end(), optimizer.begin(), optimizer.end());
  Feeder feeder;
  uint32_t period = 0;
  uint64_t found_at = 0;
  size_t steps = 0;
  for (; steps < 12 && period != step.size(); ++steps) {
    for (const uint64_t letter : step) {
      if (period == 0) {
        period = feeder.Add(letter);
        found_at = feeder.trace.end();
        continue;
      }
      feeder.trace.AddLaunch(letter, std::vector<TraceBlock>{letter});
      const LaunchIndex now = feeder.trace.end() - 1;
      if (feeder.trace.SameLaunch(now, now - period)) continue;
      feeder.finder.OnDeparture(now - found_at);
      period = feeder.finder.Add(feeder.trace, now);
    }
  }
  EXPECT_EQ(period, step.size());
  EXPECT_LE(steps, 8u);
}

TEST(PeriodFinderTest, ALongLivedPeriodThatEndsRaisesNothing) {
  Feeder feeder;
  const std::vector<uint64_t> step = Step(0, 10);
  feeder.Add(step);
  ASSERT_EQ(feeder.Add(step), 10u);
  feeder.finder.OnDeparture(1000);
  const std::vector<uint64_t> other = Step(100, 10);
  EXPECT_EQ(feeder.Add(other), 0u);
  EXPECT_EQ(feeder.Add(other), 10u);
}

TEST(PeriodFinderTest, FindsAgainAfterAFalseStartHasRaisedTheShortest) {
  Feeder feeder;
  feeder.Add(Step(0, 10));
  ASSERT_EQ(feeder.Add(Step(0, 10)), 10u);
  feeder.finder.OnDeparture(3);
  EXPECT_EQ(feeder.finder.shortest(), 20u);
  // A real step of 12 is shorter than that: it counts once nothing longer was found for a while.
  uint32_t period = 0;
  int steps = 0;
  while (period == 0 && steps < 40) {
    period = feeder.Add(Step(100, 12));
    ++steps;
  }
  EXPECT_EQ(period % 12, 0u);
  EXPECT_GT(period, 0u);
}

TEST(PeriodFinderTest, MemoryIsBoundedWithoutRepeats) {
  Feeder feeder({.shortest = 2, .longest = 64});
  for (uint64_t i = 0; i < 10000; ++i) ASSERT_EQ(feeder.Add(i), 0u);
  const std::vector<uint64_t> step = Step(100000, 60);
  uint32_t period = 0;
  for (int i = 0; i < 4 && period == 0; ++i) period = feeder.Add(step);
  EXPECT_EQ(period, 60u);
}

// Against a search through all distances at each launch.
TEST(PeriodFinderTest, EveryAnswerIsARealRepeatAndNoLongStepIsMissed) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    Feeder feeder({.shortest = 5});
    std::vector<uint64_t> letters;
    const size_t step = 5 + random() % 30;
    std::vector<uint64_t> body;
    for (size_t i = 0; i < step; ++i) body.push_back(random() % 12);
    for (size_t i = 0; i < random() % 50; ++i) letters.push_back(random() % 12);
    for (int i = 0; i < 6; ++i) letters.insert(letters.end(), body.begin(), body.end());
    uint32_t period = 0;
    for (size_t n = 1; n <= letters.size() && period == 0; ++n) {
      period = feeder.Add(letters[n - 1]);
      for (uint32_t i = 0; i < period; ++i) ASSERT_EQ(letters[n - 1 - i], letters[n - 1 - i - period]);
    }
    EXPECT_GT(period, 0u) << "round " << round;
    EXPECT_LE(period, step);
  }
}

}  // namespace
}  // namespace spillway::policy
