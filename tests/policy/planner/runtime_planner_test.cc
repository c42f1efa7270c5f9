#include "policy/planner/runtime_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

using testing::ElementsAre;

constexpr Bytes kMB = 1'000'000;
constexpr Nanos kMs = 1'000'000;

RuntimeMachine MachineOf(Bytes gpu, Bytes host) {
  RuntimeMachine machine;
  machine.machine.gpu_bytes = gpu;
  machine.machine.host_bytes = host;
  machine.machine.pcie_in = machine.machine.pcie_out = 1e9;  // 1 MB in 1 ms
  machine.machine.ssd_read = machine.machine.ssd_write = 1e9;
  return machine;
}

// Twelve launches of `launch`: block 1 (100 MB) is used by 0 and 11 and allocated again each time, block 2
// (100 MB) by 5 and 6; block 3 (1 MB) by the others.
RecordedWorkload Mountain(Nanos launch) {
  Trace trace;
  KernelTimes times;
  const BlockSizes sizes = {{1, 100 * kMB}, {2, 100 * kMB}, {3, 1 * kMB}};
  for (uint64_t k = 0; k < 12; ++k) {
    const TraceBlock block = k == 0 || k == 11 ? 1 : k == 5 || k == 6 ? 2 : 3;
    if (k == 0 || k == 5) trace.AddAllocate(block, sizes.at(block));
    if (k == 7) trace.AddFree(2);
    trace.AddLaunch(k, std::vector<TraceBlock>{block});
    const std::vector<Bytes> bytes = {sizes.at(block)};
    times.Add({KindOf(k, bytes)}, launch);
  }
  Trace whole;  // an iteration before, whose end frees block 1
  whole.AddLaunch(99, std::vector<TraceBlock>{3});
  whole.AddFree(1);
  for (LaunchIndex k = 0; k < 12; ++k) {
    for (const BlockEvent& event : trace.events()) {
      if (event.before != k) continue;
      if (event.allocated()) {
        whole.AddAllocate(event.block, event.bytes);
      } else {
        whole.AddFree(event.block);
      }
    }
    whole.AddLaunch(trace.at(k).tag, trace.at(k).blocks);
  }
  return MakeRecordedWorkload(whole, 1, 12, sizes, &times, nullptr);
}

bool Fits(const MigrationPlan& plan) {
  return *std::ranges::max_element(plan.expected_bytes) <= static_cast<int64_t>(plan.budget_bytes);
}

TEST(RuntimePlannerTest, NothingMovesWhenEverythingFits) {
  RuntimePlanner planner(Mountain(40 * kMs), MachineOf(300 * kMB, 1000 * kMB));
  ASSERT_NE(planner.Plan(), nullptr);
  EXPECT_TRUE(planner.Plan()->ops.empty());
  EXPECT_TRUE(Fits(*planner.Plan()));
  EXPECT_FALSE(planner.Improve());
  EXPECT_EQ(planner.forecast().iteration, 480 * kMs);
  EXPECT_EQ(planner.forecast().bound, 480 * kMs);
}

// The margin that plans leave free is no reason to move anything, and neither is the host's run-ahead.
TEST(RuntimePlannerTest, NothingMovesWhenEverythingJustFits) {
  RuntimeMachine machine = MachineOf(201 * kMB, 1000 * kMB);
  machine.run_ahead.launches = 2;
  RuntimePlanner planner(Mountain(40 * kMs), machine);
  ASSERT_NE(planner.Plan(), nullptr);
  EXPECT_TRUE(planner.Plan()->ops.empty());
  EXPECT_FALSE(planner.Improve());
  EXPECT_EQ(planner.forecast().iteration, 480 * kMs);
  machine.machine.gpu_bytes -= kMB;
  EXPECT_FALSE(RuntimePlanner(Mountain(40 * kMs), machine).Plan()->ops.empty());
}

TEST(RuntimePlannerTest, NoPlanWhenALaunchDoesNotFit) {
  RuntimePlanner planner(Mountain(40 * kMs), MachineOf(99 * kMB, 1000 * kMB));
  EXPECT_EQ(planner.Plan(), nullptr);
  EXPECT_FALSE(planner.Improve());
  EXPECT_EQ(planner.Plan(), nullptr);
}

TEST(RuntimePlannerTest, ABlockIsAwayWhileAnotherIsNeeded) {
  RuntimePlanner planner(Mountain(40 * kMs), MachineOf(150 * kMB, 1000 * kMB));
  const auto first = planner.Plan();
  ASSERT_NE(first, nullptr);
  // Written in 100 ms at 0.99 of the rate: from the end of launch 0 (40 ms) to 141 ms, while launch 3 runs;
  // so it is counted as away from launch 4 on.
  ASSERT_EQ(first->ops.size(), 3u);
  const PlanOp& drop = first->ops[0];
  const PlanOp& copy = first->ops[1];
  const PlanOp& fetch = first->ops[2];
  EXPECT_EQ(copy.kind, PlanOpKind::kCopyOut);
  EXPECT_EQ(copy.launch, 0u);
  EXPECT_EQ(copy.needed, 0u);
  EXPECT_EQ(drop.kind, PlanOpKind::kDrop);
  EXPECT_EQ(drop.launch, 0u);
  EXPECT_EQ(drop.needed, 11u);
  EXPECT_EQ(fetch.kind, PlanOpKind::kFetch);
  EXPECT_EQ(fetch.launch, 1u);
  EXPECT_EQ(fetch.needed, 11u);
  for (const PlanOp& op : first->ops) {
    EXPECT_EQ(op.block, 1u);
    EXPECT_EQ(op.tier, PlanTier::kHost);
  }
  EXPECT_TRUE(Fits(*first));
  EXPECT_LT(first->budget_bytes, 150 * kMB);
  EXPECT_THAT(first->durations, testing::Each(40 * kMs));
  const int64_t m = 1'000'000;
  EXPECT_THAT(first->expected_bytes,
              ElementsAre(101 * m, 101 * m, 101 * m, 101 * m, m, 101 * m, 101 * m, m, m, m, m, 101 * m));
  EXPECT_EQ(planner.forecast().iteration, 0);
  while (planner.Improve()) {
  }
  // Back from the end of launch 6 (280 ms) on, in time for launch 11 (440 ms).
  EXPECT_EQ(planner.forecast().iteration, 480 * kMs);
  EXPECT_EQ(planner.forecast().fetched_host, 100 * kMB);
  EXPECT_EQ(planner.forecast().spilled_host, 100 * kMB);
  EXPECT_EQ(planner.forecast().fetched_disk + planner.forecast().spilled_disk, 0u);
  EXPECT_EQ(planner.Plan(), first);  // no better one was to be had
}

TEST(RuntimePlannerTest, WithoutHostMemoryBytesGoToDisk) {
  RuntimePlanner planner(Mountain(40 * kMs), MachineOf(150 * kMB, 0));
  ASSERT_NE(planner.Plan(), nullptr);
  for (const PlanOp& op : planner.Plan()->ops) EXPECT_EQ(op.tier, PlanTier::kDisk);
  EXPECT_EQ(planner.forecast().fetched_disk, 100 * kMB);
}

TEST(RuntimePlannerTest, WithoutADiskTheHostTakesWhatItCan) {
  RuntimeMachine machine = MachineOf(150 * kMB, 50 * kMB);
  machine.has_disk = false;
  RuntimePlanner planner(Mountain(40 * kMs), machine);
  ASSERT_NE(planner.Plan(), nullptr);
  EXPECT_FALSE(planner.Plan()->ops.empty());
  for (const PlanOp& op : planner.Plan()->ops) EXPECT_EQ(op.tier, PlanTier::kHost);
}

TEST(RuntimePlannerTest, TheHostsRunAheadTakesMemoryEarlier) {
  RuntimeMachine machine = MachineOf(150 * kMB, 1000 * kMB);
  machine.run_ahead.nanos = 110 * kMs;  // two launches of 60 ms
  machine.run_ahead.launches = 1;
  RuntimePlanner planner(Mountain(60 * kMs), machine);
  const auto plan = planner.Plan();
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(plan->ops.size(), 3u);
  EXPECT_EQ(plan->ops[2].kind, PlanOpKind::kFetch);
  EXPECT_EQ(plan->ops[2].needed, 9u);
  // Block 2 is asked for at launch 3, block 1 at 9 for 11. Written from 60 to 161 ms, block 1 is away from 3
  // on. The request at 10 for launch 0 does not count: it is the block that launch 11 still uses.
  const int64_t m = 1'000'000;
  EXPECT_THAT(plan->expected_bytes, ElementsAre(101 * m, 101 * m, 101 * m, 101 * m, 101 * m, 101 * m, 101 * m,
                                                m, m, 101 * m, 101 * m, 101 * m));
  EXPECT_TRUE(Fits(*plan));
}

TEST(RuntimePlannerTest, ABlockFreedWhileAwayIsNotFetched) {
  // Block 1 (100) is made by launch 0 and freed before 8 without another use; 4 and 5 need block 2 (100).
  Trace trace;
  KernelTimes times;
  const BlockSizes sizes = {{1, 100 * kMB}, {2, 100 * kMB}, {3, 1 * kMB}};
  for (uint64_t k = 0; k < 10; ++k) {
    const TraceBlock block = k == 0 ? 1 : k == 4 || k == 5 ? 2 : 3;
    if (k == 0) trace.AddAllocate(1, 100 * kMB);
    if (k == 4) trace.AddAllocate(2, 100 * kMB);
    if (k == 6) trace.AddFree(2);
    if (k == 8) trace.AddFree(1);
    trace.AddLaunch(k, std::vector<TraceBlock>{block});
    const std::vector<Bytes> bytes = {sizes.at(block)};
    times.Add({KindOf(k, bytes)}, 40 * kMs);
  }
  RuntimePlanner planner(MakeRecordedWorkload(trace, 0, 10, sizes, &times, nullptr),
                         MachineOf(150 * kMB, 1000 * kMB));
  ASSERT_NE(planner.Plan(), nullptr);
  const auto& ops = planner.Plan()->ops;
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].kind, PlanOpKind::kDrop);
  EXPECT_EQ(ops[0].launch, 0u);
  EXPECT_EQ(ops[0].needed, 8u);
  EXPECT_EQ(ops[1].kind, PlanOpKind::kCopyOut);
  while (planner.Improve()) {
  }
  EXPECT_EQ(planner.forecast().fetched_host, 0u);
  EXPECT_EQ(planner.forecast().iteration, 400 * kMs);
}

TEST(RuntimePlannerTest, ContentKnownToBeReadOnlyIsCopiedEarlyAndOnce) {
  // Block 1 (100) is written by launch 0 and read by 4, 9 and 14; block 2 (100) is needed at 6, 7 and at 11,
  // 12.
  Trace trace;
  KernelTimes times;
  WriteFacts facts;
  const BlockSizes sizes = {{1, 100 * kMB}, {2, 100 * kMB}, {3, 1 * kMB}};
  for (uint64_t k = 0; k < 24; ++k) {
    const bool one = k == 0 || k == 4 || k == 9 || k == 17;
    const bool two = k == 6 || k == 7 || k == 13 || k == 14;
    const TraceBlock block = one ? 1 : two ? 2 : 3;
    if (k == 6 || k == 13) trace.AddAllocate(2, 100 * kMB);
    if (k == 8 || k == 15) trace.AddFree(2);
    trace.AddLaunch(k, std::vector<TraceBlock>{block});
    const std::vector<Bytes> bytes = {sizes.at(block)};
    times.Add({KindOf(k, bytes)}, 100 * kMs);
    for (uint32_t i = 0; one && k != 0 && i < WriteFacts::kSamplesForNo; ++i) facts.Record({k, 1}, 0, false);
  }
  RuntimePlanner planner(MakeRecordedWorkload(trace, 0, 24, sizes, &times, &facts),
                         MachineOf(150 * kMB, 1000 * kMB));
  ASSERT_NE(planner.Plan(), nullptr);
  std::vector<PlanOp> copies, drops, fetches;
  for (const PlanOp& op : planner.Plan()->ops) {
    (op.kind == PlanOpKind::kCopyOut ? copies : op.kind == PlanOpKind::kDrop ? drops : fetches).push_back(op);
  }
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].launch, 0u);  // while launch 4 has yet to read it
  EXPECT_EQ(copies[0].needed, 4u);
  ASSERT_EQ(drops.size(), 2u);
  EXPECT_EQ(drops[0].launch, 4u);
  EXPECT_EQ(drops[1].launch, 9u);
  ASSERT_EQ(fetches.size(), 2u);
  EXPECT_EQ(fetches[0].needed, 9u);
  EXPECT_EQ(fetches[1].needed, 17u);
  EXPECT_EQ(planner.forecast().spilled_host, 100 * kMB);
  EXPECT_EQ(planner.forecast().fetched_host, 200 * kMB);
}

// Whatever the job: ops belong together, and positions are in range.
TEST(RuntimePlannerTest, PlansOfRandomJobsAreWhole) {
  std::mt19937_64 random(5);
  uint32_t planned = 0, moved = 0;
  for (int round = 0; round < 300; ++round) {
    const RandomJob job = MakeRandomJob(&random);
    Trace trace;
    for (int i = 0; i < 3; ++i) job.AppendIterationTo(&trace);
    const uint32_t iteration_launches = static_cast<uint32_t>(job.launches.size());
    const LaunchIndex start = iteration_launches + random() % iteration_launches;
    const RecordedWorkload recorded =
        MakeRecordedWorkload(trace, start, iteration_launches, job.sizes, nullptr, nullptr);
    const int64_t peak = FindLifetimes(recorded.workload).PeakLive();
    RuntimeMachine machine = MachineOf(static_cast<Bytes>(peak) * (4 + random() % 7) / 10, random() % 3 * 20);
    machine.machine.pcie_in = machine.machine.pcie_out = 1e6;
    machine.machine.ssd_read = machine.machine.ssd_write = 5e5;
    machine.run_ahead.nanos = static_cast<Nanos>(random() % 3) * 10'000;
    machine.run_ahead.launches = static_cast<uint32_t>(random() % 4);
    RuntimePlanner planner(recorded, machine);
    for (int slice = 0; slice < 6 && planner.Improve(); ++slice) {
    }
    const auto plan = planner.Plan();
    if (plan == nullptr) continue;
    ++planned;
    ASSERT_EQ(plan->expected_bytes.size(), iteration_launches);
    ASSERT_EQ(plan->start, start);
    EXPECT_GE(planner.forecast().iteration, planner.forecast().bound);
    EXPECT_GE(planner.forecast().bound, planner.forecast().ideal);
    std::multiset<TraceBlock> drops, fetches, copies;
    std::set<std::tuple<PlanOpKind, TraceBlock, uint32_t>> seen;
    for (const PlanOp& op : plan->ops) {
      EXPECT_TRUE(seen.emplace(op.kind, op.block, op.launch).second);
      EXPECT_LT(op.launch, iteration_launches);
      EXPECT_LT(op.needed, iteration_launches);
      if (op.kind == PlanOpKind::kDrop) drops.insert(op.block);
      if (op.kind == PlanOpKind::kFetch) fetches.insert(op.block);
      if (op.kind == PlanOpKind::kCopyOut) copies.insert(op.block);
      EXPECT_TRUE(machine.machine.host_bytes != 0 || op.tier == PlanTier::kDisk);
    }
    moved += drops.empty() ? 0 : 1;
    EXPECT_TRUE(std::ranges::includes(drops, fetches));
    EXPECT_TRUE(std::ranges::includes(drops, copies));
    for (const TraceBlock block : drops) EXPECT_TRUE(copies.contains(block));
  }
  EXPECT_GT(planned, 50u);
  EXPECT_GT(moved, 30u);
}

}  // namespace
}  // namespace spillway::policy
