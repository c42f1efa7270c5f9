#include "policy/simulator/execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/offline/schedule_csv.h"
#include "policy/planner/plan_search.h"
#include "policy/simulator/due_parts.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Machine PieceMachine(Bytes gpu, Bytes host) {
  Machine machine = PlainMachine(gpu, host);
  machine.piece_bytes = 10 * kMega;
  return machine;
}

TransferPlan HalfAway(PlanTier tier) {
  TransferPlan plan;
  plan.absences = {{0, 0, 5, 4, tier}};
  return plan;
}

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

// Kernel 0 ends at 20 ms; the copy takes 50; the read waits for kernel 7, at 140, before which there is no room.
TEST(ExecuteTest, MovesInTheShadowOfKernels) {
  ExecutionOptions options;
  options.record = true;
  for (PlanTier tier : {PlanTier::kHost, PlanTier::kDisk}) {
    const Execution run = Executed(MountainWorkload(20 * kMilli), PieceMachine(150 * kMega, 100 * kMega),
                                   HalfAway(tier), options);
    EXPECT_EQ(run.iteration, 240 * kMilli);
    EXPECT_DOUBLE_EQ(run.PercentOfIdeal(), 100);
    EXPECT_EQ(run.peak_gpu_bytes, 150 * kMega);
    EXPECT_EQ(run.read_wait + run.room_wait, 0);
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

// With kernels of 5 ms, kernel 5 waits from 25 to 55 for room and kernel 11 from 85 to 115 for bytes.
TEST(ExecuteTest, StallsAreMeasuredByCause) {
  for (PlanTier tier : {PlanTier::kHost, PlanTier::kDisk}) {
    const Execution run =
        Executed(MountainWorkload(5 * kMilli), PieceMachine(150 * kMega, 100 * kMega), HalfAway(tier));
    EXPECT_EQ(run.iteration, 120 * kMilli);
    EXPECT_EQ(run.room_wait, 30 * kMilli);
    EXPECT_EQ(run.read_wait, 30 * kMilli);
    EXPECT_EQ(run.ssd_room_wait, tier == PlanTier::kDisk ? run.room_wait : 0);
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

// Without a plan, kernel 5 finds no room at 25 ms; 60 MB leave (parts of 60 and 40), and come back after kernel 6.
TEST(ExecuteTest, EvictsInNeedWithoutAPlan) {
  ExecutionOptions options;
  options.record = true;
  Execution run = Executed(MountainWorkload(5 * kMilli), PieceMachine(150 * kMega, 100 * kMega), {}, options);
  EXPECT_THAT(Log(run), ElementsAre("out 25-85", "drop 85", "in 95-155", "forget 155"));
  EXPECT_EQ(run.iteration, 160 * kMilli);
  EXPECT_EQ(run.evictions_in_need, 6u);
  // On demand, the way back begins only when kernel 11 asks.
  options.prefetch = false;
  options.victim = Victim::kLeastRecentlyUsed;
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
TEST(ExecuteTest, WritesOnceForTwoAbsencesOfTheSameContent) {
  Workload workload;
  workload.tensors = {{100 * kMega, true}};
  for (int k = 0; k < 10; ++k) workload.kernels.push_back({"k", 110 * kMilli, {}, {}, 0});
  workload.kernels[1].inputs = workload.kernels[5].inputs = {0};
  workload.kernels[9].inputs = workload.kernels[9].outputs = {0};
  workload.kernels[3].workspace_bytes = workload.kernels[7].workspace_bytes = 100 * kMega;
  TransferPlan plan;
  plan.absences = {{0, 0, 1, 2, PlanTier::kHost}, {1, 0, 1, 6, PlanTier::kHost}};
  const Execution run = Executed(workload, PlainMachine(100 * kMega, 100 * kMega), plan);
  EXPECT_DOUBLE_EQ(run.PercentOfIdeal(), 100);
  EXPECT_NEAR(run.traffic.gpu_to_host, 100e6, 1);
  EXPECT_NEAR(run.traffic.host_to_gpu, 200e6, 1);
}

TEST(ExecutionTablesTest, TriggersByKernel) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  const Machine machine = PieceMachine(150 * kMega, 0);
  const TransferPlan plan = HalfAway(PlanTier::kDisk);
  const ExecutionState state(workload, lifetimes, machine, plan, 64 << 20);
  ASSERT_EQ(state.parts.size(), 4u);  // 50 and 50; 60 and 40
  EXPECT_EQ(state.parts[0].bytes, 50 * kMega);
  EXPECT_EQ(state.parts[3].bytes, 40 * kMega);
  const ExecutionTables tables = MakeExecutionTables(workload, lifetimes, machine, plan, state);
  ASSERT_EQ(tables.writes[0].size(), 1u);
  EXPECT_EQ(tables.writes[0][0].expires, 11u);
  ASSERT_EQ(tables.drops[0].size(), 1u);
  EXPECT_EQ(tables.drops[0][0].counted_from, 4u);
  EXPECT_EQ(tables.drops[0][0].away, 11u);
  EXPECT_FALSE(tables.drops[0][0].keep_copy);
  EXPECT_TRUE(tables.away_at_start.empty());
}

TEST(ScheduleCsvTest, OneRowPerEvent) {
  ExecutionOptions options;
  options.record = true;
  const std::string text =
      ScheduleCsv(Executed(MountainWorkload(20 * kMilli), PieceMachine(150 * kMega, 100 * kMega),
                           HalfAway(PlanTier::kHost), options));
  EXPECT_THAT(text, HasSubstr("kind,iteration,id,first,last,src,dst,start_us,end_us\n"));
  EXPECT_THAT(text, HasSubstr("kernel,0,1,,,,,20000.000,40000.000\n"));
  EXPECT_THAT(text, HasSubstr("move,0,0,0,5,gpu,host,20000.000,70000.000\n"));
  EXPECT_THAT(text, HasSubstr("drop,0,0,0,5,gpu,,70000.000,\n"));
}

// ---- the planner as a whole

struct Case {
  const char* trace;
  Bytes host;
  double least;
};

Execution Planned(const Workload& workload, const Machine& machine, TransferPlan* plan = nullptr) {
  const Lifetimes lifetimes = FindLifetimes(workload, PlanSearch::LeastBytes(machine));
  PlanSearch search(workload, lifetimes, machine, {});
  for (;;) {
    const auto more = search.Improve();
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
  }
  if (plan != nullptr) *plan = search.best();
  return *Execute(workload, lifetimes, machine, search.best(), {});
}

TEST(PlanSearchTest, ReachesTheLimitsOfThePublishedTraces) {
  const Bytes host = 128ull << 30;
  for (const Case& it :
       {Case{"bert-256", host, 99.9}, Case{"vit-1280", host, 99.8}, Case{"resnet152-1280", host, 99.6},
        Case{"bert-256", 0, 99.8}, Case{"vit-1280", 0, 57.8}, Case{"resnet152-1280", 0, 65.8}}) {
    const Execution run = Planned(G10Workload(it.trace), G10Machine(it.host));
    EXPECT_GE(run.PercentOfIdeal(), it.least) << it.trace << " host " << it.host;
    EXPECT_LE(run.peak_gpu_bytes, G10Machine(0).gpu_bytes);
    EXPECT_EQ(run.evictions_in_need, 0u);
  }
}

TEST(PlanSearchTest, SameInputSamePlan) {
  const Workload workload = G10Workload("resnet152-1280");
  TransferPlan first, second;
  const Execution a = Planned(workload, G10Machine(32ull << 30), &first);
  const Execution b = Planned(workload, G10Machine(32ull << 30), &second);
  EXPECT_EQ(a.iteration_ends, b.iteration_ends);
  ASSERT_EQ(first.absences.size(), second.absences.size());
  for (size_t i = 0; i < first.absences.size(); ++i) {
    EXPECT_EQ(first.absences[i].interval, second.absences[i].interval);
    EXPECT_EQ(first.absences[i].from, second.absences[i].from);
    EXPECT_EQ(first.absences[i].tier, second.absences[i].tier);
  }
}

// Kernels that last up to a quarter more or less than planned cost at most 0.6 points.
TEST(PlanSearchTest, NoisyKernelsCostLittle) {
  for (const Case& it : {Case{"vit-1280", 128ull << 30, 0}, Case{"vit-1280", 0, 0}, Case{"bert-256", 0, 0}}) {
    const Workload workload = G10Workload(it.trace);
    const Machine machine = G10Machine(it.host);
    const Lifetimes lifetimes = FindLifetimes(workload, PlanSearch::LeastBytes(machine));
    TransferPlan plan;
    const double calm = Planned(workload, machine, &plan).PercentOfIdeal();
    double sum = 0;
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      std::mt19937 random(seed);
      ExecutionOptions options;
      for (uint32_t i = 0; i < options.iterations; ++i) {
        for (const WorkloadKernel& kernel : workload.kernels) {
          const double part = static_cast<double>(random()) / 4294967296.0;
          options.durations.push_back(
              static_cast<Nanos>(static_cast<double>(kernel.duration) * (0.75 + 0.5 * part)));
        }
      }
      sum += Execute(workload, lifetimes, machine, plan, options)->PercentOfIdeal();
    }
    EXPECT_GE(sum / 10, calm - 0.6) << it.trace << " host " << it.host;
  }
}

// Whatever the trace, the executor ends, and memory stays within its limits.
TEST(PlanSearchTest, RandomWorkloadsStayWithinMemory) {
  uint32_t fitting = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Workload workload = RandomWorkload(seed);
    const Lifetimes lifetimes = FindLifetimes(workload);
    Machine machine = PieceMachine(static_cast<Bytes>(lifetimes.PeakLive()) * (40 + seed % 60) / 100 + kMega,
                                   seed % 3 == 0 ? 0 : (seed % 7) * 100 * kMega);
    machine.piece_bytes = seed % 2 == 0 ? 0 : 4 * kMega;
    machine.ssd_shared = seed % 5 == 0;
    PlanSearch search(workload, lifetimes, machine, {});
    auto more = search.Improve();
    while (more.ok() && *more) more = search.Improve();
    if (!more.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(more.status()));
      continue;
    }
    ++fitting;
    const Execution run = *Execute(workload, lifetimes, machine, search.best(), {});
    EXPECT_LE(run.peak_gpu_bytes, machine.gpu_bytes) << seed;
    EXPECT_LE(run.peak_host_bytes, machine.host_bytes) << seed;
    EXPECT_GE(run.iteration, workload.IdealTime());
  }
  EXPECT_GT(fitting, 100u);
}

}  // namespace
}  // namespace spillway::policy
