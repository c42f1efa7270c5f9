#include "integration/prediction/trace_recorder.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <thread>
#include <vector>

#include "tests/integration/prediction/access_sets.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;

TEST(TraceRecorderTest, KnowsTheTagsOfLateLaunches) {
  TraceRecorder recorder({4, 16});
  EXPECT_FALSE(recorder.TagOf(0).has_value());
  for (uint64_t i = 0; i < 6; ++i) recorder.AddLaunch(i, 100 + i, SetOf({1}));
  EXPECT_FALSE(recorder.TagOf(1).has_value()) << "its entry is that of launch 5";
  EXPECT_EQ(recorder.TagOf(2), 102u);
  EXPECT_EQ(recorder.TagOf(5), 105u);
  EXPECT_FALSE(recorder.TagOf(6).has_value());
}

TEST(TraceRecorderTest, HandsLaunchesAndEventsOnInOrder) {
  TraceRecorder recorder;
  recorder.AddAllocate(BlockId(0, 1), 64, 48);
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

TEST(TraceRecorderTest, ReportsThatLaunchesOrNamesWereLost) {
  using Sizes = TraceRecorder::RingSizes;
  for (const Sizes sizes : {Sizes{8, 1024}, Sizes{1024, 16}}) {
    TraceRecorder recorder(sizes);
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

TEST(TraceRecorderTest, GivesTheLaunchThatFollowsAMark) {
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
  for (bool has_more = true; has_more;) {
    const bool all_reported = running == 0;
    const auto from = trace.end();
    const bool whole = recorder.Drain(&trace, 4096);
    for (auto i = whole ? from : trace.begin(); i < trace.end(); ++i, ++checked) {
      ASSERT_EQ(trace.at(i).tag, i * 3);
      ASSERT_EQ(trace.at(i).blocks.size(), 2u);
      ASSERT_EQ(trace.at(i).blocks[0], 1 + i % 1000);
    }
    trace.DropBefore(trace.end());
    has_more = !all_reported || trace.end() != from;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(checked, 0u);
}

// It leaves an old entry in the place of a later one, which is waited for until the ring has come round.
TEST(TraceRecorderTest, AThreadThatStandsStillForAWholeRingHoldsTheReaderForOneTurn) {
  TraceRecorder recorder({4, 16});
  for (const uint64_t index : {0, 1, 2, 3}) recorder.AddLaunch(index, index, SetOf({1}));
  policy::Trace trace;
  EXPECT_TRUE(recorder.Drain(&trace, 100));
  for (const uint64_t index : {5, 6, 7, 8}) recorder.AddLaunch(index, index, SetOf({1}));
  recorder.AddLaunch(4, 4, SetOf({1}));  // over the entry of 8
  EXPECT_TRUE(recorder.Drain(&trace, 100));
  EXPECT_EQ(trace.end(), 8u);
  for (const uint64_t index : {9, 10, 11, 12}) recorder.AddLaunch(index, index, SetOf({1}));
  EXPECT_FALSE(recorder.Drain(&trace, 100)) << "8 is lost";
  EXPECT_EQ(trace.end(), 13u);
}

}  // namespace
}  // namespace spillway::integration
