#include "integration/prediction/predictor.h"

#include <gtest/gtest.h>

#include "tests/fakes/wait_until.h"
#include "tests/integration/hooks/fake_residency.h"
#include "tests/integration/prediction/access_sets.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;

class PredictorTest : public testing::Test {
 protected:
  PredictorTest() : predictor_(PredictorOptions()) {
    residency_.stats.chunk_target_bytes = 8;
    residency_.stats.largest_set_bytes = 4;
    for (uint32_t block = 1; block <= 8; ++block) predictor_.OnAllocate(0, BlockId(0, block), 2, 2);
  }
  void Launch(uint32_t block) { predictor_.OnLaunch(0, index_++, 100 + block, SetOf({block})); }
  // Forwards over eight blocks and back.
  void RunIteration() {
    for (uint32_t block = 1; block <= 8; ++block) Launch(block);
    for (uint32_t block = 8; block >= 1; --block) Launch(block);
  }

  // Those that were put in force, without hints.
  std::vector<std::shared_ptr<const policy::MigrationPlan>> Plans() const {
    auto plans = residency_.plans;
    std::erase_if(plans, [](const auto& plan) { return plan != nullptr && plan->hints; });
    return plans;
  }

  FakeResidency residency_;
  Predictor predictor_;
  policy::LaunchIndex index_ = 0;
};

TEST_F(PredictorTest, PlansAfterTwoEqualIterations) {
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  predictor_.Poll();
  EXPECT_TRUE(residency_.plans.empty());
  RunIteration();
  predictor_.Poll();
  ASSERT_EQ(residency_.plans.size(), 1u);
  const policy::MigrationPlan& plan = *residency_.plans[0];
  EXPECT_EQ(plan.iteration_launches, 16u);
  EXPECT_EQ(plan.start, 16u);
  EXPECT_FALSE(plan.ops.empty());
  EXPECT_EQ(predictor_.stats().iteration_launches, 16u);
  for (int i = 0; i < 20; ++i) {
    RunIteration();
    predictor_.Poll();
  }
  EXPECT_EQ(residency_.plans.size(), 1u);
  EXPECT_EQ(predictor_.stats().departures, 0u);
}

TEST_F(PredictorTest, TheFirstDepartureLeavesHintsOnTheLaunchingThread) {
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  RunIteration();
  predictor_.Poll();
  ASSERT_EQ(residency_.plans.size(), 1u);
  Launch(1);
  Launch(3);  // expected: 2
  ASSERT_EQ(residency_.plans.size(), 2u);
  ASSERT_NE(residency_.plans[1], nullptr);
  EXPECT_TRUE(residency_.plans[1]->hints);
  EXPECT_EQ(residency_.plans[1]->start, residency_.plans[0]->start);
  EXPECT_FALSE(residency_.plans[1]->ops.empty());
  EXPECT_EQ(predictor_.stats().departures, 1u);
  EXPECT_EQ(predictor_.stats().iteration_launches, 0u);
  Launch(5);  // once only
  EXPECT_EQ(residency_.plans.size(), 2u);
}

TEST_F(PredictorTest, HintsMoveToWhereTheJobIsAndEndWhereItIsNowhere) {
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  RunIteration();
  predictor_.Poll();
  Launch(1);
  Launch(3);  // expected: 2
  predictor_.Poll();
  ASSERT_EQ(residency_.plans.size(), 3u);
  EXPECT_TRUE(residency_.plans[2]->hints);
  EXPECT_EQ(residency_.plans[2]->PositionOf(index_), 3u) << "block 4 is next";
  for (int strange = 0; strange < 5; ++strange) {
    EXPECT_EQ(residency_.plans.size(), 3u);
    Launch(20 + static_cast<uint32_t>(strange));
    predictor_.Poll();
  }
  ASSERT_EQ(residency_.plans.size(), 4u) << "a quarter of the iteration is over";
  EXPECT_EQ(residency_.plans[3], nullptr);
}

TEST_F(PredictorTest, NothingIsLeftOfAPlanThatWasNotInForce) {
  PredictorOptions options;
  options.mode = PredictorMode::kForecast;
  Predictor forecasts(options);
  forecasts.UsePlansOf(&residency_);
  policy::LaunchIndex index = 0;
  for (uint32_t block = 1; block <= 8; ++block) forecasts.OnAllocate(0, BlockId(0, block), 2, 2);
  for (int i = 0; i < 3; ++i) {
    for (uint32_t block = 1; block <= 8; ++block) forecasts.OnLaunch(0, index++, block, SetOf({block}));
    forecasts.Poll();
  }
  forecasts.OnLaunch(0, index++, 5, SetOf({5}));
  forecasts.Poll();
  EXPECT_EQ(forecasts.stats().departures, 1u);
  EXPECT_TRUE(residency_.plans.empty());
}

TEST_F(PredictorTest, FindsTheIterationAgainAfterADeparture) {
  predictor_.UsePlansOf(&residency_);
  for (int i = 0; i < 20; ++i) {
    RunIteration();
    predictor_.Poll();
  }
  Launch(4);  // an evaluation, say
  Launch(4);
  predictor_.Poll();
  for (int i = 0; i < 3; ++i) {
    RunIteration();
    predictor_.Poll();
  }
  ASSERT_EQ(Plans().size(), 2u);
  EXPECT_FALSE(residency_.plans.back()->hints);
  EXPECT_EQ(residency_.plans.back()->iteration_launches, 16u);
}

TEST_F(PredictorTest, LaunchesBeforeThePlanWasInForceAreComparedToo) {
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  RunIteration();
  Launch(1);
  Launch(7);  // recorded before the thread saw the iteration: a departure already
  predictor_.Poll();
  EXPECT_TRUE(residency_.plans.empty());
  EXPECT_EQ(predictor_.stats().sequences, 1u);
}

TEST_F(PredictorTest, TakesAKnownSequenceUpAgainInTheMiddleOfAnIteration) {
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  RunIteration();
  predictor_.Poll();
  ASSERT_EQ(residency_.plans.size(), 1u);
  for (uint32_t block = 11; block <= 15; ++block) Launch(block);  // an evaluation, say
  predictor_.Poll();
  ASSERT_EQ(Plans().size(), 2u);
  EXPECT_EQ(Plans()[1], nullptr) << "nothing of the plan is like it";
  for (uint32_t block = 3; block <= 8; ++block) Launch(block);
  predictor_.Poll();
  ASSERT_EQ(Plans().size(), 3u);
  const policy::MigrationPlan& plan = *Plans()[2];
  EXPECT_EQ(plan.PositionOf(index_), 8u);
  EXPECT_EQ(plan.start + 8, index_);
  EXPECT_EQ(plan.ops.size(), residency_.plans[0]->ops.size());
  EXPECT_EQ(predictor_.stats().readoptions, 1u);
  EXPECT_EQ(predictor_.stats().iteration_launches, 16u);
  // It is followed from there: the next departure drops it on the launching thread.
  for (uint32_t block = 8; block >= 1; --block) Launch(block);
  const size_t before = residency_.plans.size();
  Launch(2);
  ASSERT_EQ(residency_.plans.size(), before + 1);
  EXPECT_TRUE(residency_.plans.back()->hints);
}

TEST_F(PredictorTest, AMarkedIterationIsKnownAfterItsFirstTime) {
  predictor_.UsePlansOf(&residency_);
  Launch(9);
  predictor_.MarkIteration();
  RunIteration();
  predictor_.MarkIteration();
  Launch(9);
  predictor_.MarkIteration();
  predictor_.Poll();
  EXPECT_TRUE(residency_.plans.empty());
  EXPECT_EQ(predictor_.stats().marks, 3u);
  EXPECT_EQ(predictor_.stats().sequences, 1u);  // a single launch is none
  for (uint32_t block = 1; block <= 8; ++block) Launch(block);
  predictor_.Poll();
  ASSERT_EQ(residency_.plans.size(), 1u);
  EXPECT_EQ(residency_.plans[0]->PositionOf(index_), 8u);
  EXPECT_EQ(predictor_.stats().readoptions, 0u);
}

// Micro-batches that repeat before the first mark are no sequence once marks come: nor is their plan anybody's.
TEST_F(PredictorTest, WhatWasLearntBeforeTheFirstMarkIsNotTakenForAnIteration) {
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  RunIteration();
  predictor_.Poll();
  ASSERT_EQ(residency_.plans.size(), 1u);
  Launch(9);
  predictor_.MarkIteration();
  for (int i = 0; i < 2; ++i) {
    RunIteration();
    RunIteration();
    Launch(9);
    predictor_.MarkIteration();
  }
  Launch(1);
  Launch(2);
  predictor_.Poll();
  ASSERT_NE(residency_.plans.back(), nullptr);
  EXPECT_EQ(residency_.plans.back()->iteration_launches, 33u);
  EXPECT_EQ(predictor_.stats().iteration_launches, 33u);
}

// The walk takes the lock that allocations and launches want.
TEST_F(PredictorTest, NoPollWalksAllBlocks) {
  predictor_.UsePlansOf(&residency_);
  for (int i = 0; i < 20; ++i) {
    RunIteration();
    predictor_.Poll();
  }
  ASSERT_FALSE(residency_.plans.empty());
  EXPECT_EQ(residency_.walks.load(), 0);
}

TEST_F(PredictorTest, BetterPlansTakeOverWhenAnIterationHasEnded) {
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  RunIteration();
  predictor_.Poll();
  ASSERT_EQ(residency_.plans.size(), 1u);
  for (int slices = 0; predictor_.Improve(); ++slices) ASSERT_LT(slices, 10000);
  EXPECT_EQ(residency_.plans.size(), 1u);
  Launch(1);
  predictor_.Poll();
  EXPECT_EQ(residency_.plans.size(), 1u);  // in the middle of an iteration
  for (uint32_t block = 2; block <= 8; ++block) Launch(block);
  for (uint32_t block = 8; block >= 1; --block) Launch(block);
  predictor_.Poll();
  EXPECT_EQ(residency_.plans.size(), 1 + predictor_.stats().improved);
  EXPECT_EQ(residency_.plans.back()->PositionOf(index_), 0u);
  EXPECT_GT(predictor_.stats().forecast.ideal, 0);
  EXPECT_GT(predictor_.stats().forecast.iteration, 0);
}

TEST(PredictorIterationTest, GivesTheIterationWhileLaunchesGoOn) {
  PredictorOptions options;
  options.keep_iteration = true;
  Predictor predictor(options);
  policy::LaunchIndex index = 0;
  const auto run_iteration = [&] {
    for (uint32_t block = 1; block <= 4; ++block) {
      allocator::AccessSet set;
      set.Add(allocator::BlockId(0, block));
      predictor.OnLaunch(0, index++, /*tag=*/block, set);
    }
    predictor.MarkIteration();
    predictor.Poll();
  };
  for (uint32_t block = 1; block <= 4; ++block)
    predictor.OnAllocate(0, allocator::BlockId(0, block), 2 << 20, 2 << 20);
  predictor.AskForIteration();
  run_iteration();
  EXPECT_EQ(predictor.LastIteration(), nullptr) << "nothing was known when it was asked for";
  for (int i = 0; i < 5; ++i) run_iteration();
  EXPECT_EQ(predictor.LastIteration(), nullptr) << "nobody has asked since";
  predictor.AskForIteration();
  run_iteration();
  const auto iteration = predictor.LastIteration();
  ASSERT_NE(iteration, nullptr);
  EXPECT_EQ(iteration->recorded.workload.kernels.size(), 4u);
  EXPECT_EQ(iteration->launches.end() - iteration->launches.begin(), 4u);
  run_iteration();
  EXPECT_EQ(predictor.LastIteration(), iteration) << "it is made once for each question";
}

TEST_F(PredictorTest, ImprovesNothingWithoutAPlanInForce) {
  EXPECT_FALSE(predictor_.Improve());
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  RunIteration();
  predictor_.Poll();
  Launch(9);
  EXPECT_FALSE(predictor_.Improve());
}

TEST_F(PredictorTest, PlansAnewWhenTheMemoryChanges) {
  predictor_.UsePlansOf(&residency_);
  RunIteration();
  RunIteration();
  predictor_.Poll();
  residency_.stats.chunk_target_bytes = 5;
  RunIteration();
  predictor_.Poll();
  ASSERT_EQ(residency_.plans.size(), 2u);
  ASSERT_NE(residency_.plans[1], nullptr);
  EXPECT_EQ(residency_.plans[1]->iteration_launches, 16u);
  EXPECT_GT(residency_.plans[1]->ops.size(), residency_.plans[0]->ops.size());
  RunIteration();
  predictor_.Poll();
  EXPECT_EQ(residency_.plans.size(), 2u);
}

TEST_F(PredictorTest, ItsThreadPlansAndStops) {
  ASSERT_TRUE(predictor_.Start(&residency_).ok());
  EXPECT_TRUE(tests::WaitUntil([&] {
    RunIteration();
    return predictor_.stats().plans > 0;
  }));
  predictor_.Stop();
  predictor_.Stop();
  RunIteration();  // launches go on
}

}  // namespace
}  // namespace spillway::integration
