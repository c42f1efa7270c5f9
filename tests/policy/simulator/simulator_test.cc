#include "policy/simulator/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Execution Executed(const Workload& workload, const Machine& machine, const TransferPlan& plan,
                   const ExecutionOptions& options = {}) {
  auto run = Execute(workload, FindLifetimes(workload), machine, plan, options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *run : Execution();
}

// The times of the first iteration's moves and drops, in ms.
std::vector<std::string> Log(const Execution& run) {
  std::vector<std::string> log;
  for (const ScheduleEvent& event : run.events) {
    const auto ms = [](Nanos time) { return std::to_string(time / kMilli); };
    if (event.start >= run.iteration_ends[0]) break;
    if (event.kind == ScheduleEvent::Kind::kMove)
      log.push_back((event.from == Place::kGpu ? "out " : "in ") + ms(event.start) + "-" + ms(event.end));
    if (event.kind == ScheduleEvent::Kind::kDrop)
      log.push_back((event.from == Place::kGpu ? "drop " : "forget ") + ms(event.start));
  }
  return log;
}

// Kernel 0 ends at 20 ms; the copy takes 50; the read waits for kernel 7, at 140, before which it does not
// fit.
TEST(ExecuteTest, MovesInTheShadowOfKernels) {
  ExecutionOptions options;
  options.record = true;
  for (PlanTier tier : {PlanTier::kHost, PlanTier::kDisk}) {
    const Execution run = Executed(MountainWorkload(20 * kMilli), PieceMachine(150 * kMega, 100 * kMega),
                                   HalfAway(tier), options);
    EXPECT_EQ(run.iteration, 240 * kMilli);
    EXPECT_DOUBLE_EQ(run.PercentOfIdeal(), 100);
    EXPECT_EQ(run.peak_gpu_bytes, 150 * kMega);
    EXPECT_EQ(run.read_wait + run.memory_wait, 0);
    if (tier == PlanTier::kHost) {
      EXPECT_THAT(Log(run), ElementsAre("out 20-70", "drop 70", "in 140-190", "forget 190"));
      EXPECT_DOUBLE_EQ(run.traffic.gpu_to_host, 50e6);
      EXPECT_DOUBLE_EQ(run.traffic.host_to_gpu, 50e6);
      EXPECT_EQ(run.peak_host_bytes, 50 * kMega);
    } else {
      EXPECT_THAT(Log(run), ElementsAre("out 20-70", "drop 70", "in 140-190"));
      EXPECT_DOUBLE_EQ(run.traffic.gpu_to_ssd, 50e6);
      EXPECT_DOUBLE_EQ(run.traffic.ssd_to_gpu, 50e6);
    }
  }
}

// Kernels last 5 ms: kernel 5 waits from 25 to 55 for memory and kernel 11 from 85 to 115 for bytes.
TEST(ExecuteTest, StallsAreMeasuredByCause) {
  for (PlanTier tier : {PlanTier::kHost, PlanTier::kDisk}) {
    const Execution run =
        Executed(MountainWorkload(5 * kMilli), PieceMachine(150 * kMega, 100 * kMega), HalfAway(tier));
    EXPECT_EQ(run.iteration, 120 * kMilli);
    EXPECT_EQ(run.memory_wait, 30 * kMilli);
    EXPECT_EQ(run.read_wait, 30 * kMilli);
    EXPECT_EQ(run.ssd_memory_wait, tier == PlanTier::kDisk ? run.memory_wait : 0);
    EXPECT_EQ(run.ssd_read_wait, tier == PlanTier::kDisk ? run.read_wait : 0);
    EXPECT_EQ(run.read_waits[11], 30 * kMilli);
    EXPECT_DOUBLE_EQ(run.PercentOfIdeal(), 50);
  }
}

TEST(ExecuteTest, LatencyAddsToEachMove) {
  Machine machine = PieceMachine(150 * kMega, 100 * kMega);
  machine.transfer_latency = 2 * kMilli;
  const Execution run = Executed(MountainWorkload(5 * kMilli), machine, HalfAway(PlanTier::kHost));
  EXPECT_EQ(run.iteration, 124 * kMilli);
}

// There is no plan: kernel 5 does not fit at 25 ms; 60 MB leave (parts of 60 and 40), and come back after
// kernel 6.
TEST(ExecuteTest, EvictsInNeedWithoutAPlan) {
  ExecutionOptions options;
  options.record = true;
  Execution run = Executed(MountainWorkload(5 * kMilli), PieceMachine(150 * kMega, 100 * kMega), {}, options);
  EXPECT_THAT(Log(run), ElementsAre("out 25-85", "drop 85", "in 95-155", "forget 155"));
  EXPECT_EQ(run.iteration, 160 * kMilli);
  EXPECT_EQ(run.evictions_in_need, 6u);
  // On demand, the way back begins only when kernel 11 asks.
  options.prefetch = false;
  options.victims = VictimOrder::kLeastRecentlyUsed;
  run = Executed(MountainWorkload(5 * kMilli), PieceMachine(150 * kMega, 100 * kMega), {}, options);
  EXPECT_EQ(run.iteration, 180 * kMilli);
  // A host that is too small: the SSD.
  run = Executed(MountainWorkload(5 * kMilli), PieceMachine(150 * kMega, 30 * kMega), {});
  EXPECT_DOUBLE_EQ(run.traffic.gpu_to_ssd, 60e6);
}

TEST(ExecuteTest, AFullHostSendsAPlannedCopyToTheSsd) {
  const Execution run = Executed(MountainWorkload(20 * kMilli), PieceMachine(150 * kMega, 30 * kMega),
                                 HalfAway(PlanTier::kHost));
  EXPECT_DOUBLE_EQ(run.traffic.gpu_to_host, 0);
  EXPECT_DOUBLE_EQ(run.traffic.gpu_to_ssd, 50e6);
  EXPECT_LE(run.peak_host_bytes, 30 * kMega);
}

// The GPU has headroom for the 50 MB from 140 ms on; the drive needs 200 ms for them, and kernel 11 is due at
// 220.
TEST(ExecuteTest, WhatWaitsForHeadroomComesToHostMemoryMeanwhile) {
  ExecutionOptions options;
  options.record = true;
  Machine machine = PieceMachine(150 * kMega, 100 * kMega);
  machine.ssd_read = 0.25e9;
  TransferPlan plan = HalfAway(PlanTier::kDisk);
  Execution run = Executed(MountainWorkload(20 * kMilli), machine, plan, options);
  EXPECT_THAT(Log(run), ElementsAre("out 20-70", "drop 70", "in 140-340"));
  EXPECT_EQ(run.iteration, 360 * kMilli);
  plan.promotes = true;
  run = Executed(MountainWorkload(20 * kMilli), machine, plan, options);
  EXPECT_THAT(Log(run), ElementsAre("out 20-70", "drop 70", "in 70-270", "in 270-320", "forget 320"));
  EXPECT_EQ(run.iteration, 340 * kMilli);
  EXPECT_EQ(run.peak_host_bytes, 50 * kMega);
  EXPECT_DOUBLE_EQ(run.traffic.ssd_to_host, 50e6);
  EXPECT_DOUBLE_EQ(run.traffic.host_to_gpu, 50e6);
  EXPECT_DOUBLE_EQ(run.traffic.ssd_to_gpu, 0);
  // Host memory that does not hold them does not help.
  machine.host_bytes = 40 * kMega;
  EXPECT_EQ(Executed(MountainWorkload(20 * kMilli), machine, plan).iteration, 360 * kMilli);
}

// Tensors 0 and 1, of 50 MB each, are away meanwhile; the plan needs host memory for tensor 1 from kernel 2 on.
TEST(ExecuteTest, HostMemoryThatThePlanNeedsIsLeftAlone) {
  Workload workload;
  workload.tensors = {{50 * kMega, false}, {50 * kMega, false}};
  for (int k = 0; k < 6; ++k) workload.kernels.push_back({"k", 60 * kMilli, {}, {}, 0});
  workload.kernels[0].outputs = workload.kernels[5].inputs = {0};
  workload.kernels[1].outputs = workload.kernels[4].inputs = {1};
  workload.kernels[3].workspace_bytes = 100 * kMega;
  TransferPlan plan;
  plan.promotes = true;
  plan.evictions = {{0, 0, 1, 2, PlanTier::kDisk}, {1, 0, 1, 3, PlanTier::kHost}};
  for (const Bytes host : {50 * kMega, 100 * kMega}) {
    const Execution run = Executed(workload, PlainMachine(100 * kMega, host), plan);
    EXPECT_DOUBLE_EQ(run.traffic.ssd_to_host, host == 50 * kMega ? 0 : 50e6) << host;
    EXPECT_EQ(run.peak_host_bytes, host);
  }
}

TEST(ExecuteTest, SaysWhichKernelCannotFit) {
  const Workload workload = MountainWorkload();
  const auto run = Execute(workload, FindLifetimes(workload), PieceMachine(90 * kMega, 0), {}, {});
  ASSERT_FALSE(run.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(run.status()));
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("kernel 0 (k) needs 100000000 bytes"));
}

TEST(ExecuteTest, GivenDurationsReplaceTheTraces) {
  const Workload workload = MountainWorkload(20 * kMilli);
  ExecutionOptions options;
  options.durations.assign(12 * 6, 10 * kMilli);
  options.durations[70] = 30 * kMilli;
  const Execution run = Executed(workload, PlainMachine(200 * kMega, 0), {}, options);
  EXPECT_EQ(run.iteration, 130 * kMilli);  // 120 and 140
  EXPECT_EQ(run.ideal, 130 * kMilli);
}

// A weight that the update dirties: written once after it, dropped clean twice, read back twice.
TEST(ExecuteTest, WritesOnceForTwoEvictionsOfTheSameContent) {
  Workload workload;
  workload.tensors = {{100 * kMega, true}};
  for (int k = 0; k < 10; ++k) workload.kernels.push_back({"k", 110 * kMilli, {}, {}, 0});
  workload.kernels[1].inputs = workload.kernels[5].inputs = {0};
  workload.kernels[9].inputs = workload.kernels[9].outputs = {0};
  workload.kernels[3].workspace_bytes = workload.kernels[7].workspace_bytes = 100 * kMega;
  TransferPlan plan;
  plan.evictions = {{0, 0, 1, 2, PlanTier::kHost}, {1, 0, 1, 6, PlanTier::kHost}};
  const Execution run = Executed(workload, PlainMachine(100 * kMega, 100 * kMega), plan);
  EXPECT_DOUBLE_EQ(run.PercentOfIdeal(), 100);
  EXPECT_NEAR(run.traffic.gpu_to_host, 100e6, 1);
  EXPECT_NEAR(run.traffic.host_to_gpu, 200e6, 1);
}

}  // namespace
}  // namespace spillway::policy
