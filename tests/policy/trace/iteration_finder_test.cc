#include "policy/trace/iteration_finder.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

// Feeds launches with one block each, as letters, and answers with the first iteration found and when.
struct Feeder {
  explicit Feeder(const IterationOptions& options = IterationOptions()) : finder(options) {}

  uint32_t Add(uint64_t letter) {
    trace.AddLaunch(letter, std::vector<TraceBlock>{letter});
    finder.Add(trace.at(trace.end() - 1).signature);
    return finder.Found(trace, trace.end());
  }
  // Stops at the first iteration.
  uint32_t Add(const std::vector<uint64_t>& letters) {
    for (const uint64_t letter : letters) {
      if (const uint32_t iteration_launches = Add(letter)) return iteration_launches;
    }
    return 0;
  }
  Trace trace;
  IterationFinder finder;
};

std::vector<uint64_t> Iteration(uint64_t first, size_t launches) {
  std::vector<uint64_t> iteration;
  for (size_t i = 0; i < launches; ++i) iteration.push_back(first + i);
  return iteration;
}

TEST(IterationFinderTest, FindsAnIterationAtTheEndOfItsSecondRun) {
  for (const size_t launches : {2u, 3u, 5u, 100u, 3000u}) {
    Feeder feeder;
    feeder.Add(Iteration(1000000, 37));  // set-up that never comes again
    const std::vector<uint64_t> iteration = Iteration(0, launches);
    EXPECT_EQ(feeder.Add(iteration), 0u);
    const uint64_t before = feeder.trace.end();
    EXPECT_EQ(feeder.Add(iteration), launches);
    EXPECT_EQ(feeder.trace.end() - before, launches);
  }
}

TEST(IterationFinderTest, FindsAnIterationOfAHundredThousandLaunches) {
  Feeder feeder;
  const std::vector<uint64_t> iteration = Iteration(0, 100000);
  EXPECT_EQ(feeder.Add(iteration), 0u);
  EXPECT_EQ(feeder.Add(iteration), 100000u);
}

TEST(IterationFinderTest, FindsAnIterationInWhichEveryLaunchComesTwice) {
  Feeder feeder({.shortest = 3});
  std::vector<uint64_t> iteration;
  for (uint64_t i = 0; i < 50; ++i) iteration.insert(iteration.end(), {i, i});
  EXPECT_EQ(feeder.Add(iteration), 0u);
  EXPECT_EQ(feeder.Add(iteration), 100u);
}

TEST(IterationFinderTest, FindsNothingWhenOneLaunchDiffers) {
  Feeder feeder;
  std::vector<uint64_t> iteration = Iteration(0, 40);
  EXPECT_EQ(feeder.Add(iteration), 0u);
  iteration[39] = 4000;
  EXPECT_EQ(feeder.Add(iteration), 0u);
}

TEST(IterationFinderTest, BlocksCountAndTagsCount) {
  Trace trace;
  IterationFinder finder({.shortest = 2});
  uint32_t found = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    // The same tags for ever, but one block moves on each time round.
    trace.AddLaunch(i % 4, std::vector<TraceBlock>{i % 4 == 3 ? i : i % 4});
    finder.Add(trace.at(i).signature);
    found |= finder.Found(trace, i + 1);
  }
  EXPECT_EQ(found, 0u);
}

TEST(IterationFinderTest, GrowsPastEqualMicroBatches) {
  // Four equal micro-batches and an optimizer: M M M M O.
  const std::vector<uint64_t> micro = Iteration(0, 20);
  std::vector<uint64_t> iteration;
  for (int i = 0; i < 4; ++i) iteration.insert(iteration.end(), micro.begin(), micro.end());
  const std::vector<uint64_t> optimizer = Iteration(500, 7);
  iteration.insert(iteration.end(), optimizer.begin(), optimizer.end());
  Feeder feeder;
  EXPECT_EQ(feeder.Add(iteration), 20u);  // after the second micro-batch
  while (feeder.trace.end() < 80) EXPECT_EQ(feeder.Add(feeder.trace.end() % 20), 20u);
  for (const uint64_t letter : optimizer) EXPECT_EQ(feeder.Add(letter), 0u);
  // The inner repeat is seen again in the second iteration; from its end on the iteration is.
  for (size_t i = 0; i < iteration.size(); ++i) {
    const uint32_t iteration_launches = feeder.Add(iteration[i]);
    EXPECT_EQ(iteration_launches == iteration.size(), i + 1 == iteration.size());
  }
  for (int more = 0; more < 3; ++more) {
    for (const uint64_t letter : iteration) EXPECT_EQ(feeder.Add(letter), iteration.size());
  }
}

TEST(IterationFinderTest, ReportsForHowLongARepeatHasGoneOn) {
  Feeder feeder;
  const std::vector<uint64_t> iteration = Iteration(0, 10);
  feeder.Add(iteration);
  EXPECT_EQ(feeder.finder.run(), 0u);
  ASSERT_EQ(feeder.Add(iteration), 10u);
  EXPECT_EQ(feeder.finder.run(), 10u);
  feeder.Add(iteration);
  EXPECT_EQ(feeder.finder.run(), 11u);  // Add stops at the first launch with an iteration
  feeder.Add(777);
  EXPECT_EQ(feeder.finder.run(), 0u);
}

TEST(IterationFinderTest, StartsOver) {
  Feeder feeder;
  feeder.Add(Iteration(0, 10));
  feeder.finder.Restart();
  EXPECT_EQ(feeder.Add(Iteration(0, 10)), 0u);
  EXPECT_EQ(feeder.Add(Iteration(0, 10)), 10u);
}

TEST(IterationFinderTest, LooksNoFurtherBackThanTheTrace) {
  Feeder feeder;
  feeder.Add(Iteration(0, 10));
  feeder.trace.DropBefore(6);
  EXPECT_EQ(feeder.Add(Iteration(0, 10)), 10u);  // launches 0..5 are known by their signatures alone
  feeder.trace.DropBefore(12);
  EXPECT_EQ(feeder.Add(0), 0u);  // less than one iteration is there
}

TEST(IterationFinderTest, MemoryIsBoundedWithoutRepeats) {
  Feeder feeder({.shortest = 2, .longest = 64});
  for (uint64_t i = 0; i < 10000; ++i) ASSERT_EQ(feeder.Add(i), 0u);
  const std::vector<uint64_t> iteration = Iteration(100000, 60);
  uint32_t iteration_launches = 0;
  for (int i = 0; i < 4 && iteration_launches == 0; ++i) iteration_launches = feeder.Add(iteration);
  EXPECT_EQ(iteration_launches, 60u);
}

// Against a search through all distances at each launch.
TEST(IterationFinderTest, EveryAnswerIsARealRepeatAndNoLongIterationIsMissed) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    Feeder feeder({.shortest = 5});
    std::vector<uint64_t> letters;
    const size_t iteration = 5 + random() % 30;
    std::vector<uint64_t> body;
    for (size_t i = 0; i < iteration; ++i) body.push_back(random() % 12);
    for (size_t i = 0; i < random() % 50; ++i) letters.push_back(random() % 12);
    for (int i = 0; i < 6; ++i) letters.insert(letters.end(), body.begin(), body.end());
    uint32_t iteration_launches = 0;
    for (size_t n = 1; n <= letters.size() && iteration_launches == 0; ++n) {
      iteration_launches = feeder.Add(letters[n - 1]);
      for (uint32_t i = 0; i < iteration_launches; ++i)
        ASSERT_EQ(letters[n - 1 - i], letters[n - 1 - i - iteration_launches]);
    }
    EXPECT_GT(iteration_launches, 0u) << "round " << round;
    EXPECT_LE(iteration_launches, iteration);
  }
}

}  // namespace
}  // namespace spillway::policy
