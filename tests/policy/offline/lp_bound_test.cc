// The LP bound by hand-computed cases, by the published traces, and against what the executor does on random
// workloads.

#include "policy/offline/lp_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "policy/bound/quick_bound.h"
#include "policy/offline/lp_plan.h"
#include "policy/planner/plan_search.h"
#include "policy/planner/transfer_choice.h"
#include "policy/simulator/simulator.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

constexpr Bytes kEnough = 1000 * kMega;

double BoundMillis(const Workload& workload, const Machine& machine, LpForm form = LpForm::kAnyPlan) {
  const auto bound = FindLpBound(workload, FindLifetimes(workload), machine, form);
  EXPECT_TRUE(bound.ok()) << bound.status();
  return bound.ok() ? static_cast<double>(bound->iteration) / kMilli : -1;
}

// Kernels of 10 ms each without tensors; persistent tensor 0 and intermediate tensor 1 of 100 MB each.
Workload FourKernels() {
  Workload workload;
  workload.tensors = {{100 * kMega, true}, {100 * kMega, false}};
  for (int k = 0; k < 4; ++k) workload.kernels.push_back({"k", 10 * kMilli, {}, {}, 0});
  workload.kernels[2].outputs = {1};
  workload.kernels[3].inputs = {1};
  return workload;
}

// Kernels of nearly no time: 50 MB go to the SSD and come back, over drives that share their limit between
// directions. One of 1e9: 100 ms. Of 2e9 and 1e9: a third of that. One that reads at 3e9 and writes at 1e9
// and one the other way round: at first only writes (4e9 together), then only reads: no byte comes from where
// it did not go, but a sum of rates does not see that.
TEST(LpBoundTest, DrivesThatShareTheirLimitAreTheirTriangles) {
  const Workload workload = MountainWorkload(1000);
  Machine machine = PlainMachine(150 * kMega, 0);
  machine.ssd_shared = true;
  EXPECT_NEAR(BoundMillis(workload, machine), 100, 0.1);
  machine.pcie_in = machine.pcie_out = 1e11;
  machine.ssd_read = machine.ssd_write = 3e9;
  machine.drives = {{2e9, 2e9}, {1e9, 1e9}};
  EXPECT_NEAR(BoundMillis(workload, machine), 100.0 / 3, 0.1);
  machine.ssd_read = machine.ssd_write = 4e9;
  machine.drives = {{3e9, 1e9}, {1e9, 3e9}};
  EXPECT_NEAR(BoundMillis(workload, machine), 25, 0.1);
}

TEST(LpBoundTest, IsTheSumOfTheKernelsWhenEverythingFits) {
  const auto bound = FindLpBound(MountainWorkload(), FindLifetimes(MountainWorkload()),
                                 PlainMachine(200 * kMega, kEnough), LpForm::kAnyPlan);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->iteration, 120 * kMilli);
  EXPECT_EQ(bound->columns, 0u);
}

TEST(LpBoundTest, CountsTheWayOutAndTheWayBack) {
  // 50 MB leave in 40 ms of kernels and 10 of waiting, and return likewise.
  EXPECT_NEAR(BoundMillis(MountainWorkload(), PlainMachine(150 * kMega, kEnough)), 140, 0.01);
  // Kernels of 20 ms leave time for both.
  EXPECT_NEAR(BoundMillis(MountainWorkload(20 * kMilli), PlainMachine(150 * kMega, kEnough)), 240, 0.01);
  // Twice as fast out, half as fast in: 25 ms out, 100 ms in.
  Machine machine = PlainMachine(150 * kMega, kEnough);
  machine.pcie_out = 2e9;
  machine.pcie_in = 0.5e9;
  EXPECT_NEAR(BoundMillis(MountainWorkload(), machine), 180, 0.01);
}

TEST(LpBoundTest, SaysWhichBytesAreAwayAndWhereItWaits) {
  const Workload workload = MountainWorkload();
  const auto bound =
      FindLpBound(workload, FindLifetimes(workload), PlainMachine(150 * kMega, kEnough), LpForm::kAnyPlan);
  ASSERT_TRUE(bound.ok());
  ASSERT_EQ(bound->evictions.size(), 1u);
  EXPECT_EQ(bound->evictions[0].interval, 0u);
  EXPECT_NEAR(bound->evictions[0].host_bytes, 50e6, 1e3);
  Nanos gaps = 0;
  for (Nanos gap : bound->gaps) gaps += gap;
  EXPECT_NEAR(static_cast<double>(gaps) / kMilli, 20, 0.01);
}

TEST(LpBoundTest, SharesTheWorkBetweenTheTiers) {
  Machine machine = PlainMachine(150 * kMega, 0);
  machine.ssd_read = machine.ssd_write = 0.5e9;
  // 50 MB by the SSD: 100 ms each way, of which 40 are kernels'.
  EXPECT_NEAR(BoundMillis(MountainWorkload(), machine), 240, 0.01);
  // 25 MB by the SSD in 50 ms, the rest meanwhile by the link.
  machine.host_bytes = 25 * kMega;
  EXPECT_NEAR(BoundMillis(MountainWorkload(), machine), 140, 0.01);
  EXPECT_NEAR(BoundMillis(MountainWorkload(), machine, LpForm::kKeepTier), 140, 0.01);
  // 40 MB by the SSD: 80 ms each way.
  machine.host_bytes = 10 * kMega;
  EXPECT_NEAR(BoundMillis(MountainWorkload(), machine), 200, 0.01);
  EXPECT_NEAR(BoundMillis(MountainWorkload(), machine, LpForm::kKeepTier), 200, 0.01);
}

TEST(LpBoundTest, MovingBetweenTiersMayHelp) {
  // Tensors 0 and 1 of 50 MB are away together for kernel 4; the host holds one. Each has 50 ms to leave,
  // enough for the host only; 0 has 200 ms to go on to the SSD before 1 comes.
  Workload workload;
  workload.tensors = {{50 * kMega, false}, {50 * kMega, false}};
  for (Nanos millis : {10, 50, 200, 50, 10, 50, 10, 200, 10})
    workload.kernels.push_back({"k", millis * kMilli, {}, {}, 0});
  workload.kernels[0].outputs = workload.kernels[8].inputs = {0};
  workload.kernels[2].outputs = workload.kernels[6].inputs = {1};
  workload.kernels[4].workspace_bytes = 60 * kMega;
  Machine machine = PlainMachine(60 * kMega, 50 * kMega);
  machine.ssd_read = machine.ssd_write = 0.25e9;
  EXPECT_NEAR(BoundMillis(workload, machine), 590, 0.01);
  // Kept: the SSD must take 50 MB from the GPU, of which it gets 12.5 behind each 50 ms, and 10 of tensor 0
  // behind kernel 2, where they fit. The rest, 15 MB, takes 60 ms of waiting.
  EXPECT_NEAR(BoundMillis(workload, machine, LpForm::kKeepTier), 650, 0.01);
}

TEST(LpBoundTest, ReadsWhatIsNeverWrittenButWritesItNever) {
  Workload workload = FourKernels();
  workload.kernels[0].inputs = {0};
  // 50 MB of tensor 0 are away for kernels 2 and 3 and return before the next kernel 0.
  EXPECT_NEAR(BoundMillis(workload, PlainMachine(150 * kMega, kEnough)), 40 + 50, 0.01);
}

TEST(LpBoundTest, WritesFromTheEndOfTheWritingKernelOn) {
  Workload workload = FourKernels();
  workload.kernels[0].inputs = workload.kernels[0].outputs = {0};
  // 50 MB out, 10 of the 50 ms behind kernel 1; 50 back.
  EXPECT_NEAR(BoundMillis(workload, PlainMachine(150 * kMega, kEnough)), 40 + 40 + 50, 0.01);
  // The same while kernel 1 reads it.
  workload.kernels[1].inputs = {0};
  EXPECT_NEAR(BoundMillis(workload, PlainMachine(150 * kMega, kEnough)), 40 + 40 + 50, 0.01);
  // Kernel 1 writes it: no time is left.
  workload.kernels[1].outputs = {0};
  EXPECT_NEAR(BoundMillis(workload, PlainMachine(150 * kMega, kEnough)), 40 + 50 + 50, 0.01);
}

TEST(LpBoundTest, WhatIsOverwrittenUnreadNeedNotReturn) {
  Workload workload = FourKernels();
  workload.kernels[0].outputs = {0};
  workload.kernels[1].inputs = {0};
  for (Bytes host : {kEnough, Bytes{0}, 20 * kMega}) {
    EXPECT_NEAR(BoundMillis(workload, PlainMachine(150 * kMega, host)), 40 + 40, 0.01) << host;
    EXPECT_NEAR(BoundMillis(workload, PlainMachine(150 * kMega, host), LpForm::kKeepTier), 40 + 40, 0.01)
        << host;
  }
}

// Tensor 0 is made by kernel 0, read by 4 and 8, in the way of the workspaces of 2 and 6.
Workload TwoEvictions(bool written_between) {
  Workload workload;
  workload.tensors = {{100 * kMega, false}};
  for (Nanos millis : {10, 50, 10, 50, 10, 1, 10, 50, 10})
    workload.kernels.push_back({"k", millis * kMilli, {}, {}, 0});
  workload.kernels[0].outputs = {0};
  workload.kernels[4].inputs = workload.kernels[8].inputs = {0};
  if (written_between) workload.kernels[4].outputs = {0};
  workload.kernels[2].workspace_bytes = workload.kernels[6].workspace_bytes = 100 * kMega;
  return workload;
}

TEST(LpBoundTest, AContentIsWrittenOnce) {
  const Machine machine = PlainMachine(150 * kMega, kEnough);
  EXPECT_NEAR(BoundMillis(TwoEvictions(false), machine), 201, 0.01);
  EXPECT_NEAR(BoundMillis(TwoEvictions(true), machine), 201 + 49, 0.01);
}

TEST(LpBoundTest, ASharedDriveDoesOneThingAtATime) {
  // Two tensors take turns on a GPU that holds one.
  Workload workload;
  workload.tensors = {{100 * kMega, true}, {100 * kMega, true}};
  for (int k = 0; k < 4; ++k) workload.kernels.push_back({"k", 10 * kMilli, {}, {}, 0});
  workload.kernels[0].inputs = workload.kernels[0].outputs = {0};
  workload.kernels[2].inputs = workload.kernels[2].outputs = {1};
  Machine machine = PlainMachine(100 * kMega, 0);
  EXPECT_NEAR(BoundMillis(workload, machine), 20 + 2 * 100, 0.01);
  machine.ssd_shared = true;
  EXPECT_NEAR(BoundMillis(workload, machine), 20 + 2 * 200, 0.01);
}

TEST(LpBoundTest, NamesAKernelThatCannotRun) {
  const auto bound = FindLpBound(MountainWorkload(), FindLifetimes(MountainWorkload()),
                                 PlainMachine(90 * kMega, kEnough), LpForm::kAnyPlan);
  EXPECT_TRUE(absl::IsResourceExhausted(bound.status())) << bound.status();
}

// The limits of a separate study, to a tenth of a point.
TEST(LpBoundTest, PublishedTracesHaveTheKnownLimits) {
  const struct {
    const char* trace;
    Bytes host;
    double percent;
  } cases[] = {{"bert-256", 128ull << 30, 100},
               {"vit-1280", 128ull << 30, 100},
               {"bert-256", 0, 100},
               {"vit-1280", 0, 58.17},
               {"resnet152-1280", 0, 65.99},
               {"resnet152-1280", 128ull << 30, 99.74}};
  for (const auto& one : cases) {
    const Workload workload = G10Workload(one.trace);
    const auto bound = FindLpBound(workload, FindLifetimes(workload), G10Machine(one.host), LpForm::kAnyPlan);
    ASSERT_TRUE(bound.ok()) << one.trace << ": " << bound.status();
    const double percent =
        100 * static_cast<double>(workload.IdealTime()) / static_cast<double>(bound->iteration);
    EXPECT_NEAR(percent, one.percent, 0.1) << one.trace << ", host " << one.host;
  }
}

}  // namespace
}  // namespace spillway::policy
