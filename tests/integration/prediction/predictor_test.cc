#include "integration/prediction/predictor.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/integration/hooks/fake_residency.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;

AccessSet SetOf(std::initializer_list<uint32_t> blocks) {
  AccessSet set;
  for (const uint32_t block : blocks) set.Add(BlockId(0, block));
  return set;
}

// ---- TraceRecorder

TEST(TraceRecorderTest, HandsLaunchesAndEventsOnInOrder) {
  TraceRecorder recorder;
  recorder.AddAllocate(BlockId(0, 1), 64);
  recorder.AddLaunch(0, 7, SetOf({1, 2}));
  recorder.AddFree(BlockId(0, 1));
  recorder.AddLaunch(1, 8, SetOf({2}));
  policy::Trace trace;
  EXPECT_TRUE(recorder.Drain(&trace, 100));
  ASSERT_EQ(trace.end(), 2u);
  EXPECT_EQ(trace.at(0).tag, 7u);
  EXPECT_EQ(trace.at(0).blocks[1], TraceBlockOf(BlockId(0, 2)));
  ASSERT_EQ(trace.events().size(), 2u);
  EXPECT_EQ(trace.events()[0].before, 0u);
  EXPECT_EQ(trace.events()[1].before, 1u);
  std::vector<policy::BlockEvent> allocations;
  recorder.TakeAllocations(&allocations);
  ASSERT_EQ(allocations.size(), 1u);
  EXPECT_EQ(allocations[0].bytes, 64u);
}

TEST(TraceRecorderTest, WaitsForALaunchThatAnotherThreadHasYetToReport) {
  TraceRecorder recorder;
  policy::Trace trace;
  recorder.AddLaunch(1, 11, SetOf({2}));
  EXPECT_TRUE(recorder.Drain(&trace, 100));
  EXPECT_EQ(trace.end(), 0u);
  recorder.AddLaunch(0, 10, SetOf({1}));
  EXPECT_TRUE(recorder.Drain(&trace, 100));
  ASSERT_EQ(trace.end(), 2u);
  EXPECT_EQ(trace.at(1).tag, 11u);
}

TEST(TraceRecorderTest, SaysSoWhenLaunchesOrNamesWereLost) {
  for (const TraceRecorder::Room room : {TraceRecorder::Room{8, 1024}, TraceRecorder::Room{1024, 16}}) {
    TraceRecorder recorder(room);
    policy::Trace trace;
    for (uint64_t i = 0; i < 100; ++i) recorder.AddLaunch(i, i, SetOf({1, 2, 3, 4, 5, 6, 7, 8, 9}));
    bool whole = true;
    for (int i = 0; i < 100; ++i) whole &= recorder.Drain(&trace, 1000);
    EXPECT_FALSE(whole);
    EXPECT_EQ(trace.end(), 100u);
    for (auto i = trace.begin(); i < trace.end(); ++i) EXPECT_EQ(trace.at(i).tag, i);
    EXPECT_GT(trace.end() - trace.begin(), 0u);
  }
}

TEST(TraceRecorderTest, SaysBeforeWhichLaunchAMarkCame) {
  TraceRecorder recorder;
  recorder.AddMark();
  recorder.AddLaunch(0, 7, SetOf({1}));
  recorder.AddLaunch(1, 7, SetOf({1}));
  recorder.AddMark();
  recorder.AddLaunch(2, 7, SetOf({1}));
  policy::Trace trace;
  std::deque<policy::LaunchIndex> marks;
  recorder.TakeMarks(&marks);
  EXPECT_TRUE(marks.empty());
  EXPECT_TRUE(recorder.Drain(&trace, 100));
  recorder.TakeMarks(&marks);
  EXPECT_EQ(marks, (std::deque<policy::LaunchIndex>{0, 2}));
}

TEST(TraceRecorderTest, AnEventComesAfterAllLaunchesReportedBefore) {
  TraceRecorder recorder;
  // Reported in this order the greatest index is not the one written last.
  recorder.AddLaunch(1, 7, SetOf({1}));
  recorder.AddLaunch(2, 7, SetOf({1}));
  recorder.AddLaunch(0, 7, SetOf({1}));
  recorder.AddFree(BlockId(0, 1));
  policy::Trace trace;
  EXPECT_TRUE(recorder.Drain(&trace, 100));
  recorder.AddLaunch(3, 7, SetOf({1}));
  EXPECT_TRUE(recorder.Drain(&trace, 100));
  ASSERT_EQ(trace.events().size(), 1u);
  EXPECT_EQ(trace.events()[0].before, 3u);
}

TEST(TraceRecorderTest, ManyThreadsAndOneReader) {
  TraceRecorder recorder({1u << 12, 1u << 14});
  std::atomic<uint64_t> next{0};
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const uint64_t index = next++;
        const auto block = static_cast<uint32_t>(1 + index % 1000);
        recorder.AddLaunch(index, index * 3, SetOf({block, block + 1}));
      }
      --running;
    });
  }
  policy::Trace trace;
  uint64_t checked = 0;
  while (running > 0 || trace.end() < 60000) {
    const auto from = trace.end();
    const bool whole = recorder.Drain(&trace, 4096);
    for (auto i = whole ? from : trace.begin(); i < trace.end(); ++i, ++checked) {
      ASSERT_EQ(trace.at(i).tag, i * 3);
      ASSERT_EQ(trace.at(i).blocks.size(), 2u);
      ASSERT_EQ(trace.at(i).blocks[0], 1 + i % 1000);
    }
    trace.DropBefore(trace.end());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(checked, 0u);
}

// ---- Predictor

class PredictorTest : public testing::Test {
 protected:
  PredictorTest() : predictor_(PredictorOptions()) {
    residency_.stats.chunk_target_bytes = 8;
    residency_.stats.largest_set_bytes = 4;
    for (uint32_t block = 1; block <= 8; ++block) predictor_.OnAllocate(0, BlockId(0, block), 2);
  }
  void Launch(uint32_t block) { predictor_.OnLaunch(0, index_++, 100 + block, SetOf({block})); }
  // Forwards over eight blocks and back.
  void RunStep() {
    for (uint32_t block = 1; block <= 8; ++block) Launch(block);
    for (uint32_t block = 8; block >= 1; --block) Launch(block);
  }

  FakeResidency residency_;
  Predictor predictor_;
  policy::LaunchIndex index_ = 0;
};

TEST_F(PredictorTest, PlansAfterTwoEqualSteps) {
  predictor_.UsePlansOf(&residency_);
  RunStep();
  predictor_.Step();
  EXPECT_TRUE(residency_.plans.empty());
  RunStep();
  predictor_.Step();
  ASSERT_EQ(residency_.plans.size(), 1u);
  const policy::MigrationPlan& plan = *residency_.plans[0];
  EXPECT_EQ(plan.period, 16u);
  EXPECT_EQ(plan.start, 16u);
  EXPECT_FALSE(plan.steps.empty());
  EXPECT_EQ(predictor_.stats().period, 16u);
  for (int i = 0; i < 20; ++i) {
    RunStep();
    predictor_.Step();
  }
  EXPECT_EQ(residency_.plans.size(), 1u);
  EXPECT_EQ(predictor_.stats().departures, 0u);
}

TEST_F(PredictorTest, TheFirstDepartureDropsThePlanOnTheLaunchingThread) {
  predictor_.UsePlansOf(&residency_);
  RunStep();
  RunStep();
  predictor_.Step();
  ASSERT_EQ(residency_.plans.size(), 1u);
  Launch(1);
  Launch(3);  // expected: 2
  ASSERT_EQ(residency_.plans.size(), 2u);
  EXPECT_EQ(residency_.plans[1], nullptr);
  EXPECT_EQ(predictor_.stats().departures, 1u);
  EXPECT_EQ(predictor_.stats().period, 0u);
  Launch(5);  // once only
  EXPECT_EQ(residency_.plans.size(), 2u);
}

TEST_F(PredictorTest, FindsTheStepAgainAfterADeparture) {
  predictor_.UsePlansOf(&residency_);
  for (int i = 0; i < 20; ++i) {
    RunStep();
    predictor_.Step();
  }
  Launch(4);  // an evaluation, say
  Launch(4);
  predictor_.Step();
  for (int i = 0; i < 3; ++i) {
    RunStep();
    predictor_.Step();
  }
  ASSERT_EQ(residency_.plans.size(), 3u);
  EXPECT_NE(residency_.plans[2], nullptr);
  EXPECT_EQ(residency_.plans[2]->period, 16u);
}

TEST_F(PredictorTest, LaunchesBeforeThePlanWasInForceAreComparedToo) {
  predictor_.UsePlansOf(&residency_);
  RunStep();
  RunStep();
  Launch(1);
  Launch(7);  // recorded before the thread saw the period: a departure already
  predictor_.Step();
  EXPECT_TRUE(residency_.plans.empty());
  EXPECT_EQ(predictor_.stats().paths, 1u);
}

TEST_F(PredictorTest, TakesAKnownPathUpAgainInTheMiddleOfAStep) {
  predictor_.UsePlansOf(&residency_);
  RunStep();
  RunStep();
  predictor_.Step();
  ASSERT_EQ(residency_.plans.size(), 1u);
  for (uint32_t block = 11; block <= 15; ++block) Launch(block);  // an evaluation, say
  predictor_.Step();
  ASSERT_EQ(residency_.plans.size(), 2u);
  EXPECT_EQ(residency_.plans[1], nullptr);
  for (uint32_t block = 3; block <= 8; ++block) Launch(block);
  predictor_.Step();
  ASSERT_EQ(residency_.plans.size(), 3u);
  const policy::MigrationPlan& plan = *residency_.plans[2];
  EXPECT_EQ(plan.PositionOf(index_), 8u);
  EXPECT_EQ(plan.start + 8, index_);
  EXPECT_EQ(plan.steps.size(), residency_.plans[0]->steps.size());
  EXPECT_EQ(predictor_.stats().readoptions, 1u);
  EXPECT_EQ(predictor_.stats().period, 16u);
  // It is followed from there: the next departure drops it on the launching thread.
  for (uint32_t block = 8; block >= 1; --block) Launch(block);
  EXPECT_EQ(residency_.plans.size(), 3u);
  Launch(2);
  ASSERT_EQ(residency_.plans.size(), 4u);
  EXPECT_EQ(residency_.plans[3], nullptr);
}

TEST_F(PredictorTest, AMarkedStepIsKnownAfterItsFirstTime) {
  predictor_.UsePlansOf(&residency_);
  Launch(9);
  predictor_.MarkStep();
  RunStep();
  predictor_.MarkStep();
  Launch(9);
  predictor_.MarkStep();
  predictor_.Step();
  EXPECT_TRUE(residency_.plans.empty());
  EXPECT_EQ(predictor_.stats().marks, 3u);
  EXPECT_EQ(predictor_.stats().paths, 1u);  // a single launch is none
  for (uint32_t block = 1; block <= 8; ++block) Launch(block);
  predictor_.Step();
  ASSERT_EQ(residency_.plans.size(), 1u);
  EXPECT_EQ(residency_.plans[0]->PositionOf(index_), 8u);
  EXPECT_EQ(predictor_.stats().readoptions, 0u);
}

TEST_F(PredictorTest, BetterPlansTakeOverWhenAStepHasEnded) {
  predictor_.UsePlansOf(&residency_);
  RunStep();
  RunStep();
  predictor_.Step();
  ASSERT_EQ(residency_.plans.size(), 1u);
  for (int slices = 0; predictor_.Improve(); ++slices) ASSERT_LT(slices, 10000);
  EXPECT_EQ(residency_.plans.size(), 1u);
  Launch(1);
  predictor_.Step();
  EXPECT_EQ(residency_.plans.size(), 1u);  // in the middle of a step
  for (uint32_t block = 2; block <= 8; ++block) Launch(block);
  for (uint32_t block = 8; block >= 1; --block) Launch(block);
  predictor_.Step();
  EXPECT_EQ(residency_.plans.size(), 1 + predictor_.stats().improved);
  EXPECT_EQ(residency_.plans.back()->PositionOf(index_), 0u);
  EXPECT_GT(predictor_.stats().forecast.ideal, 0);
  EXPECT_GT(predictor_.stats().forecast.iteration, 0);
}

TEST_F(PredictorTest, ImprovesNothingWithoutAPlanInForce) {
  EXPECT_FALSE(predictor_.Improve());
  predictor_.UsePlansOf(&residency_);
  RunStep();
  RunStep();
  predictor_.Step();
  Launch(9);
  EXPECT_FALSE(predictor_.Improve());
}

TEST_F(PredictorTest, PlansAnewWhenTheRoomChanges) {
  predictor_.UsePlansOf(&residency_);
  RunStep();
  RunStep();
  predictor_.Step();
  residency_.stats.chunk_target_bytes = 5;
  RunStep();
  predictor_.Step();
  ASSERT_EQ(residency_.plans.size(), 2u);
  ASSERT_NE(residency_.plans[1], nullptr);
  EXPECT_EQ(residency_.plans[1]->period, 16u);
  EXPECT_GT(residency_.plans[1]->steps.size(), residency_.plans[0]->steps.size());
  RunStep();
  predictor_.Step();
  EXPECT_EQ(residency_.plans.size(), 2u);
}

TEST_F(PredictorTest, ItsThreadPlansAndStops) {
  ASSERT_TRUE(predictor_.Start(&residency_).ok());
  for (int i = 0; i < 2000 && predictor_.stats().plans == 0; ++i) {
    RunStep();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_GE(predictor_.stats().plans, 1u);
  predictor_.Stop();
  predictor_.Stop();
  RunStep();  // launches go on
}

}  // namespace
}  // namespace spillway::integration
