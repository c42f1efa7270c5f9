#include "policy/trace/iteration_finder.h"

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
    finder.Add(trace.at(trace.end() - 1).signature);
    return finder.Found(trace, trace.end());
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
    finder.Add(trace.at(i).signature);
    found |= finder.Found(trace, i + 1);
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
  EXPECT_EQ(feeder.Add(step), 20u);  // after the second micro-batch
  while (feeder.trace.end() < 80) EXPECT_EQ(feeder.Add(feeder.trace.end() % 20), 20u);
  for (const uint64_t letter : optimizer) EXPECT_EQ(feeder.Add(letter), 0u);
  // The inner repeat is seen again in the second step; from its end on the step is.
  for (size_t i = 0; i < step.size(); ++i) {
    const uint32_t period = feeder.Add(step[i]);
    EXPECT_EQ(period == step.size(), i + 1 == step.size());
  }
  for (int more = 0; more < 3; ++more) {
    for (const uint64_t letter : step) EXPECT_EQ(feeder.Add(letter), step.size());
  }
}

TEST(PeriodFinderTest, SaysForHowLongARepeatHasHeld) {
  Feeder feeder;
  const std::vector<uint64_t> step = Step(0, 10);
  feeder.Add(step);
  EXPECT_EQ(feeder.finder.run(), 0u);
  ASSERT_EQ(feeder.Add(step), 10u);
  EXPECT_EQ(feeder.finder.run(), 10u);
  feeder.Add(step);
  EXPECT_EQ(feeder.finder.run(), 11u);  // Add stops at the first launch with a period
  feeder.Add(777);
  EXPECT_EQ(feeder.finder.run(), 0u);
}

TEST(PeriodFinderTest, StartsOver) {
  Feeder feeder;
  feeder.Add(Step(0, 10));
  feeder.finder.Restart();
  EXPECT_EQ(feeder.Add(Step(0, 10)), 0u);
  EXPECT_EQ(feeder.Add(Step(0, 10)), 10u);
}

TEST(PeriodFinderTest, LooksNoFurtherBackThanTheTrace) {
  Feeder feeder;
  feeder.Add(Step(0, 10));
  feeder.trace.DropBefore(6);
  EXPECT_EQ(feeder.Add(Step(0, 10)), 10u);  // launches 0..5 are known by their signatures alone
  feeder.trace.DropBefore(12);
  EXPECT_EQ(feeder.Add(0), 0u);  // less than one period is there
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
