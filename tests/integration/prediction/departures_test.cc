#include "integration/prediction/departures.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace spillway::integration {
namespace {

class DeparturesTest : public testing::Test {
 protected:
  Departures::Plan Hints() {
    auto hints = std::make_shared<policy::MigrationPlan>();
    hints->hints = true;
    return hints;
  }

  std::vector<Departures::Plan> dropped_;
  Departures departures_{[this](const Departures::Plan& hints) { dropped_.push_back(hints); }};
};

TEST_F(DeparturesTest, NothingDepartsFromNothing) {
  EXPECT_FALSE(departures_.expecting());
  departures_.Compare(0, 1);
  departures_.Depart();
  EXPECT_TRUE(dropped_.empty());
  EXPECT_FALSE(departures_.KeepsTo());
}

TEST_F(DeparturesTest, AnIterationRecursFromItsStartOn) {
  departures_.Expect(10, {1, 2, 3}, nullptr);
  EXPECT_TRUE(departures_.expecting());
  EXPECT_EQ(departures_.iteration_launches(), 3u);
  departures_.Compare(9, 77);  // before it
  for (const uint64_t signature : {1, 2, 3}) departures_.Compare(9 + signature, signature);
  EXPECT_TRUE(departures_.KeepsTo());
  departures_.Compare(13, 1);
  departures_.Compare(15, 3);
  EXPECT_EQ(departures_.count(), 0u);
}

TEST_F(DeparturesTest, TheFirstOtherLaunchDropsThePlanOnce) {
  const Departures::Plan hints = Hints();
  departures_.Expect(0, {1, 2}, hints);
  departures_.Compare(1, 7);
  departures_.Compare(2, 8);
  ASSERT_EQ(dropped_.size(), 1u);
  EXPECT_EQ(dropped_[0], hints);
  EXPECT_EQ(departures_.count(), 1u);
  EXPECT_EQ(departures_.iteration_launches(), 0u);
  EXPECT_FALSE(departures_.KeepsTo());
  EXPECT_TRUE(departures_.expected());
  EXPECT_EQ(departures_.hints(), hints) << "the thread puts them in force again where it was overtaken";
  departures_.Forget();
  EXPECT_FALSE(departures_.expected());
}

TEST_F(DeparturesTest, WhatIsRetiredIsFreedAndWhatWasExpectedLastIsNot) {
  const Departures::Plan first = Hints(), second = Hints();
  departures_.Expect(0, {1}, first);
  departures_.Depart();
  departures_.Expect(4, {2}, second);
  dropped_.clear();
  departures_.FreeRetired();
  EXPECT_EQ(first.use_count(), 1);
  departures_.Depart();
  dropped_.clear();
  departures_.FreeRetired();
  EXPECT_EQ(second.use_count(), 2) << "hints() may still be asked for";
  departures_.Forget();
  departures_.FreeRetired();
  EXPECT_EQ(second.use_count(), 1);
}

// Launching threads compare while the predictor's thread replaces what is expected: each departure drops
// once.
TEST_F(DeparturesTest, ThreadsThatDepartAtOnceDropOnce) {
  constexpr int kRounds = 200;
  std::atomic<int> drops{0};
  Departures departures([&](const Departures::Plan&) { ++drops; });
  std::atomic<int> round{0};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int seen = 0; seen < kRounds; ++seen) {
        while (round.load() <= seen) std::this_thread::yield();
        departures.Compare(0, 99);
        ++done;
      }
    });
  }
  for (int i = 0; i < kRounds; ++i) {
    departures.Expect(0, {1}, nullptr);
    round.store(i + 1);
    while (done.load() != 2 * (i + 1)) std::this_thread::yield();
    departures.FreeRetired();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(drops.load(), kRounds);
  EXPECT_EQ(departures.count(), uint64_t{kRounds});
}

}  // namespace
}  // namespace spillway::integration
