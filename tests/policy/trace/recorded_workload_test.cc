#include "policy/trace/recorded_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "policy/model/lifetimes.h"
#include "policy/model/workload_file.h"
#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Bytes kMiB = 1 << 20;

RecordedWorkload Record(const Trace& trace, LaunchIndex start, uint32_t iteration_launches,
                        const BlockSizes& sizes, const WriteFacts* facts = nullptr) {
  return MakeRecordedWorkload(trace, start, iteration_launches, sizes, nullptr, facts);
}

TEST(RecordedWorkloadTest, ABlockWithoutEventsIsPersistentReadAndWritten) {
  Trace trace;
  Append(&trace, {{1, {7}}, {2, {7, 8}}, {3, {8, 8}}});
  const RecordedWorkload recorded = Record(trace, 0, 3, {{7, 2 * kMiB}, {8, 4 * kMiB}});
  EXPECT_TRUE(CheckWorkload(recorded.workload).ok());
  EXPECT_THAT(recorded.blocks, ElementsAre(7, 8));
  for (const WorkloadTensor& tensor : recorded.workload.tensors) {
    EXPECT_TRUE(tensor.persistent);
    EXPECT_FALSE(tensor.life.has_value());
  }
  EXPECT_THAT(recorded.workload.kernels[1].inputs, ElementsAre(0, 1));
  EXPECT_THAT(recorded.workload.kernels[1].outputs, ElementsAre(0, 1));
  EXPECT_THAT(recorded.workload.kernels[2].inputs, ElementsAre(1));
  EXPECT_EQ(recorded.start, 0u);
  EXPECT_EQ(recorded.workload.kernels.size(), 3u);
  EXPECT_THAT(FindLifetimes(recorded.workload).live_bytes, ElementsAre(6 * kMiB, 6 * kMiB, 6 * kMiB));
}

TEST(RecordedWorkloadTest, ABlockHandedOutTwiceIsTwoTensorsWhichLiveUntilTheyAreFreed) {
  // Block 5: allocated before 0, used by 0 and 1, freed before 3; allocated before 4, used by 4 alone,
  // freed before 5.
  Trace trace;
  trace.AddAllocate(5, 2 * kMiB);
  Append(&trace, {{1, {5}}, {2, {5}}, {3, {9}}});
  trace.AddFree(5);
  Append(&trace, {{4, {9}}});
  trace.AddAllocate(5, 2 * kMiB);
  Append(&trace, {{5, {5}}});
  trace.AddFree(5);
  Append(&trace, {{6, {9}}});
  const RecordedWorkload recorded = Record(trace, 0, 6, {{5, 2 * kMiB}, {9, 2 * kMiB}});
  EXPECT_TRUE(CheckWorkload(recorded.workload).ok());
  ASSERT_EQ(recorded.blocks.size(), 3u);
  EXPECT_THAT(recorded.blocks, ElementsAre(5, 5, 9));
  // Once around from the first event on, so the life that begins with it comes first.
  EXPECT_EQ(recorded.workload.tensors[0].life, (TensorLife{0, 2}));
  EXPECT_EQ(recorded.workload.tensors[1].life, (TensorLife{4, 4}));
  EXPECT_TRUE(recorded.workload.tensors[2].persistent);
  EXPECT_THAT(recorded.workload.kernels[0].inputs, IsEmpty());
  EXPECT_THAT(recorded.workload.kernels[0].outputs, ElementsAre(0));
  EXPECT_THAT(recorded.workload.kernels[1].inputs, ElementsAre(0));
  EXPECT_THAT(recorded.workload.kernels[4].outputs, ElementsAre(1));
  const Lifetimes lifetimes = FindLifetimes(recorded.workload);
  EXPECT_THAT(lifetimes.live_bytes, ElementsAre(4 * kMiB, 4 * kMiB, 4 * kMiB, 2 * kMiB, 4 * kMiB, 2 * kMiB));
}

// A block used at 4 and, in the next iteration, at 1, freed before 2; then unused until it is allocated
// again before 4.
RecordedWorkload Wrapping() {
  Trace trace;
  for (int i = 0; i < 2; ++i) {
    Append(&trace, {{1, {9}}, {2, {5}}});
    trace.AddFree(5);
    Append(&trace, {{3, {9}}, {4, {9}}});
    trace.AddAllocate(5, 2 * kMiB);
    Append(&trace, {{5, {5}}, {6, {9}}});
  }
  return Record(trace, 6, 6, {{5, 2 * kMiB}, {9, 4 * kMiB}});
}

TEST(RecordedWorkloadTest, ALifeOverTheIterationsEndWraps) {
  const RecordedWorkload recorded = Wrapping();
  EXPECT_TRUE(CheckWorkload(recorded.workload).ok());
  EXPECT_THAT(recorded.blocks, ElementsAre(9, 5));
  EXPECT_EQ(recorded.workload.tensors[1].life, (TensorLife{4, 1}));
  EXPECT_THAT(recorded.workload.kernels[4].inputs, IsEmpty());
  EXPECT_THAT(recorded.workload.kernels[1].inputs, ElementsAre(1));
  const Lifetimes lifetimes = FindLifetimes(recorded.workload);
  EXPECT_THAT(lifetimes.live_bytes, ElementsAre(6 * kMiB, 6 * kMiB, 4 * kMiB, 4 * kMiB, 6 * kMiB, 6 * kMiB));
  EXPECT_EQ(lifetimes.last_live[1], 1u);
  EXPECT_TRUE(lifetimes.live_at_start[1]);
  // It is idle from kernel 4 to kernel 1 of the next iteration, and nowhere else.
  const auto idle = std::ranges::find(lifetimes.intervals, 1u, &IdleInterval::tensor);
  ASSERT_NE(idle, lifetimes.intervals.end());
  EXPECT_EQ(idle->after, 4u);
  EXPECT_EQ(idle->before, 7u);
  EXPECT_EQ(idle->written, 4);
  EXPECT_TRUE(idle->returns);
  EXPECT_EQ(std::ranges::count(lifetimes.intervals, 1u, &IdleInterval::tensor), 1);
}

TEST(RecordedWorkloadTest, LivesSurviveTheFile) {
  const RecordedWorkload recorded = Wrapping();
  const auto again = DecodeWorkload(EncodeWorkload(recorded.workload));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->tensors.size(), 2u);
  EXPECT_TRUE(again->tensors[0].persistent);
  EXPECT_FALSE(again->tensors[0].life.has_value());
  EXPECT_FALSE(again->tensors[1].persistent);
  EXPECT_EQ(again->tensors[1].life, (TensorLife{4, 1}));
  EXPECT_EQ(FindLifetimes(*again).live_bytes, FindLifetimes(recorded.workload).live_bytes);
  // A life that does not hold the tensor's kernels is none.
  Workload wrong = recorded.workload;
  wrong.tensors[1].life = TensorLife{4, 0};
  EXPECT_FALSE(CheckWorkload(wrong).ok());
}

TEST(RecordedWorkloadTest, TheTimeFromLastUseToFreeIsIdleWithoutReturn) {
  // Used by 0 and, of the next iteration counted on, never again; freed before 4.
  Trace trace;
  trace.AddAllocate(5, 2 * kMiB);
  Append(&trace, {{1, {5}}, {2, {9}}, {3, {9}}, {4, {9}}});
  trace.AddFree(5);
  Append(&trace, {{5, {9}}});
  const RecordedWorkload recorded = Record(trace, 0, 5, {{9, 2 * kMiB}});
  EXPECT_EQ(recorded.workload.tensors[0].bytes, 2 * kMiB);  // by its allocation
  EXPECT_EQ(recorded.workload.tensors[0].life, (TensorLife{0, 3}));
  const Lifetimes lifetimes = FindLifetimes(recorded.workload);
  ASSERT_EQ(std::ranges::count(lifetimes.intervals, 0u, &IdleInterval::tensor), 1);
  EXPECT_EQ(lifetimes.intervals[0].after, 0u);
  EXPECT_EQ(lifetimes.intervals[0].before, 4u);
  EXPECT_FALSE(lifetimes.intervals[0].returns);
}

TEST(RecordedWorkloadTest, TouchesKnownToReadOnlyWriteNothing) {
  WriteFacts facts;
  for (uint32_t i = 0; i < WriteFacts::kSamplesForNo; ++i) facts.Record({2, 1}, 0, false);
  facts.Record({3, 1}, 0, true);
  Trace trace;
  Append(&trace, {{1, {7}}, {2, {7}}, {3, {7}}, {2, {8, 7}}});
  const RecordedWorkload recorded = Record(trace, 0, 4, {{7, 2 * kMiB}, {8, 2 * kMiB}}, &facts);
  EXPECT_THAT(recorded.workload.kernels[0].outputs, ElementsAre(0));
  EXPECT_THAT(recorded.workload.kernels[1].outputs, IsEmpty());
  EXPECT_THAT(recorded.workload.kernels[1].inputs, ElementsAre(0));
  EXPECT_THAT(recorded.workload.kernels[2].outputs, ElementsAre(0));
  EXPECT_THAT(recorded.workload.kernels[3].outputs, ElementsAre(0, 1));  // it names two blocks: unknown
}

TEST(RecordedWorkloadTest, DurationsAreMeasuredTypicalOrGuessed) {
  Trace trace;
  Append(&trace, {{1, {7}}, {2, {7, 8}}});
  const BlockSizes sizes = {{7, 2 * kMiB}, {8, 4 * kMiB}};
  KernelTimes times;
  RecordedWorkload recorded = MakeRecordedWorkload(trace, 0, 2, sizes, &times, nullptr);
  EXPECT_EQ(recorded.workload.kernels[0].duration, 10'000);
  EXPECT_EQ(recorded.measured, 0u);
  const std::vector<Bytes> bytes = {2 * kMiB, 4 * kMiB};
  times.Add({KindOf(2, bytes)}, 70'000);
  recorded = MakeRecordedWorkload(trace, 0, 2, sizes, &times, nullptr);
  EXPECT_EQ(recorded.workload.kernels[0].duration, 70'000);
  EXPECT_EQ(recorded.workload.kernels[1].duration, 70'000);
  EXPECT_EQ(recorded.measured, 1u);
}

TEST(RecordedWorkloadTest, LivesOfRandomJobsAgreeWithAWalkOverTwoIterations) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const RandomJob job = MakeRandomJob(&random);
    Trace trace;
    for (int i = 0; i < 3; ++i) job.AppendIterationTo(&trace);
    const uint32_t iteration_launches = static_cast<uint32_t>(job.launches.size());
    const uint32_t start = iteration_launches + static_cast<uint32_t>(random() % iteration_launches);
    const RecordedWorkload recorded = Record(trace, start, iteration_launches, job.sizes);
    ASSERT_TRUE(CheckWorkload(recorded.workload).ok());
    // The job's own account: a block of no temporary is always there, a temporary from its first use to its
    // free.
    std::vector<int64_t> live(iteration_launches, 0);
    std::set<TraceBlock> temporary;
    for (const RandomJob::Temporary& one : job.temporaries) {
      temporary.insert(one.block);
      for (uint32_t k = one.born; k < one.freed; ++k)
        live[k] += static_cast<int64_t>(job.sizes.at(one.block));
    }
    std::set<TraceBlock> named;
    for (const TestLaunch& launch : job.launches) named.insert(launch.blocks.begin(), launch.blocks.end());
    for (const TraceBlock block : named) {
      if (temporary.contains(block)) continue;
      for (int64_t& bytes : live) bytes += static_cast<int64_t>(job.sizes.at(block));
    }
    std::rotate(live.begin(), live.begin() + start % iteration_launches, live.end());
    EXPECT_EQ(FindLifetimes(recorded.workload).live_bytes, live) << "round " << round;
  }
}

}  // namespace
}  // namespace spillway::policy
