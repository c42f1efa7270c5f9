// Plans as the cursor carries them out: what RuntimePlanner forecasts comes about, and beats moving on
// demand.

#include "policy/simulator/block_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "policy/planner/plan_search.h"
#include "policy/planner/runtime_planner.h"
#include "tests/policy/job_traces.h"
#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

// A GPU of `part` of the job's peak, and links that move the peak `turns` times in an iteration without
// waits.
Machine MachineFor(const RecordedWorkload& recorded, double part, double turns, Bytes host) {
  const double peak = static_cast<double>(FindLifetimes(recorded.workload).PeakLive());
  Machine machine;
  machine.gpu_bytes = static_cast<Bytes>(peak * part);
  machine.host_bytes = host;
  machine.pcie_in = turns * peak * 1e9 / static_cast<double>(recorded.workload.IdealTime());
  machine.pcie_out = machine.ssd_read = machine.ssd_write = machine.pcie_in;
  return machine;
}

RuntimePlanner PlannerFor(const RecordedWorkload& recorded, const Machine& machine) {
  RuntimeMachine runtime;
  runtime.machine = machine;
  runtime.run_ahead.launches = 3;
  return RuntimePlanner(recorded, runtime);
}

absl::StatusOr<Execution> CarryOut(const RecordedWorkload& recorded, const Machine& machine,
                                   std::shared_ptr<const MigrationPlan> plan, uint32_t iterations = 6) {
  const Lifetimes lifetimes = FindLifetimes(recorded.workload);
  ExecutionOptions options;
  options.iterations = iterations;
  options.record = true;
  return BlockMachine(recorded, lifetimes).Run(machine, std::move(plan), options);
}

double Ratio(Nanos a, Nanos b) { return static_cast<double>(a) / static_cast<double>(b); }

// Wherever the recording of the iteration begins, whether gradients live over its end or not: all cases of
// the run time's table in docs/results/policy.md, and 30 more. A job goes on for longer than a trial.
TEST(BlockMachineTest, ForecastsComeAboutAndPlansBeatMovingOnDemand) {
  for (const bool kept : {false, true}) {
    for (const uint32_t less : {0u, 17u, 60u}) {
      for (const double part : {0.5, 0.7}) {
        for (const double turns : {0.5, 1.0, 2.0}) {
          SCOPED_TRACE(testing::Message() << kept << " " << less << " " << part << " " << turns);
          TrainingJob job;
          job.gradients_kept = kept;
          const RecordedWorkload recorded = job.Recorded(less);
          const Machine machine = MachineFor(recorded, part, turns, 0);
          RuntimePlanner planner = PlannerFor(recorded, machine);
          ASSERT_NE(planner.Plan(), nullptr);
          const auto first = CarryOut(recorded, machine, planner.Plan());
          ASSERT_TRUE(first.ok()) << first.status();
          while (planner.Improve()) {
          }
          const auto plan = planner.Plan();
          const auto run = CarryOut(recorded, machine, plan, 12);
          ASSERT_TRUE(run.ok()) << run.status();
          EXPECT_NEAR(Ratio(run->iteration, planner.forecast().iteration), 1, 0.02);
          EXPECT_EQ(run->evictions_in_need, 0u);
          EXPECT_LE(run->peak_gpu_bytes, machine.gpu_bytes);
          EXPECT_GE(run->iteration, planner.forecast().bound);
          // A transfer over the iteration's end counts in part.
          EXPECT_NEAR(run->traffic.ssd_to_gpu / static_cast<double>(planner.forecast().fetched_disk), 1,
                      0.06);
          const auto lru = CarryOut(recorded, machine, nullptr);
          ASSERT_TRUE(lru.ok()) << lru.status();
          // Links that could move the peak twice leave little to gain.
          const double most = turns < 2 ? 0.92 : 0.975;
          EXPECT_LT(Ratio(run->iteration, lru->iteration), most);
          EXPECT_LT(Ratio(first->iteration, lru->iteration), most);
        }
      }
    }
  }
}

// Not knowing what writes costs time, not correctness.
TEST(BlockMachineTest, WithoutWriteFactsPlansAreCarriedOutToo) {
  const RecordedWorkload recorded = TrainingJob().Recorded(17, /*facts=*/false);
  const Machine machine = MachineFor(recorded, 0.6, 1.0, 0);
  RuntimePlanner planner = PlannerFor(recorded, machine);
  while (planner.Improve()) {
  }
  const auto run = CarryOut(recorded, machine, planner.Plan());
  const auto lru = CarryOut(recorded, machine, nullptr);
  ASSERT_TRUE(run.ok() && lru.ok());
  EXPECT_LE(run->peak_gpu_bytes, machine.gpu_bytes);
  EXPECT_LT(run->iteration, lru->iteration);
}

// When activations go, memory dips before the update: the optimizer's states come in there, not when the
// update asks.
TEST(BlockMachineTest, OptimiserStatesComeInWhileMemoryDips) {
  const TrainingJob job;
  const RecordedWorkload recorded = job.Recorded();
  const Machine machine = MachineFor(recorded, 0.7, 2.0, 0);
  RuntimePlanner planner = PlannerFor(recorded, machine);
  while (planner.Improve()) {
  }
  const auto run = CarryOut(recorded, machine, planner.Plan());
  ASSERT_TRUE(run.ok()) << run.status();
  const uint32_t update = job.IterationLaunches() - job.layers;
  const uint32_t backward = job.layers * job.launches;
  std::set<uint32_t> states, ahead;  // used by nothing but the update
  const Lifetimes lifetimes = FindLifetimes(recorded.workload);
  for (uint32_t t = 0; t < recorded.workload.tensors.size(); ++t) {
    if (recorded.workload.tensors[t].persistent && lifetimes.uses[t].front() >= update) states.insert(t);
  }
  ASSERT_EQ(states.size(), 2 * job.layers);
  // When the last iteration's backward pass and update begin.
  Nanos backward_start = 0, update_start = 0;
  for (const ScheduleEvent& event : run->events) {
    if (event.kind != ScheduleEvent::Kind::kKernel || event.iteration != 5) continue;
    if (event.id == backward) backward_start = event.start;
    if (event.id == update) update_start = event.start;
  }
  for (const ScheduleEvent& event : run->events) {
    if (event.kind == ScheduleEvent::Kind::kMove && event.to == Place::kGpu && states.contains(event.id) &&
        event.start >= backward_start && event.start < update_start)
      ahead.insert(event.id);
  }
  // Weights and gradients take 192 MiB at the end of the backward pass, of a budget of 320 that half of the
  // states need.
  EXPECT_GE(ahead.size(), job.layers / 2);
  EXPECT_LT(Ratio(run->iteration, planner.forecast().ideal), 1.1);
}

// What `spillway simulate --piece 0` finds for the recorded iteration is what the runtime's planner finds,
// less its margin.
TEST(BlockMachineTest, TheForecastAgreesWithTheSimulator) {
  const RecordedWorkload recorded = TrainingJob().Recorded(17);
  for (const double part : {0.5, 0.7}) {
    for (const double turns : {0.5, 1.0, 2.0}) {
      RuntimeMachine machine;
      machine.machine = MachineFor(recorded, part, turns, 0);
      machine.machine.piece_bytes = 0;
      RuntimePlanner planner(recorded, machine);
      while (planner.Improve()) {
      }
      const Lifetimes lifetimes = FindLifetimes(recorded.workload, PlanSearch::LeastBytes(machine.machine));
      PlanSearch search(recorded.workload, lifetimes, machine.machine, SearchOptions());
      while (search.Improve().value()) {
      }
      EXPECT_LE(Ratio(planner.forecast().iteration, search.best_iteration()), 1.1) << part << " " << turns;
      EXPECT_GE(Ratio(planner.forecast().iteration, search.best_iteration()), 0.95) << part << " " << turns;
    }
  }
}

// Random jobs, recorded from anywhere in their iteration: whatever the plan, the machine gets through.
TEST(BlockMachineTest, PlansOfRandomJobsAreCarriedOut) {
  std::mt19937_64 random(29);
  uint32_t moved = 0;
  for (int round = 0; round < 150; ++round) {
    const RandomJob job = MakeRandomJob(&random);
    Trace trace;
    for (int i = 0; i < 3; ++i) job.AppendIterationTo(&trace);
    const uint32_t iteration_launches = static_cast<uint32_t>(job.launches.size());
    const RecordedWorkload recorded =
        MakeRecordedWorkload(trace, iteration_launches + random() % iteration_launches, iteration_launches,
                             job.sizes, nullptr, nullptr);
    const Machine machine = MachineFor(recorded, 0.4 + 0.1 * static_cast<double>(random() % 6), 1.0, 0);
    RuntimePlanner planner = PlannerFor(recorded, machine);
    for (int slice = 0; slice < 4 && planner.Improve(); ++slice) {
    }
    if (planner.Plan() == nullptr) continue;
    moved += planner.Plan()->ops.empty() ? 0 : 1;
    const auto run = CarryOut(recorded, machine, planner.Plan());
    ASSERT_TRUE(run.ok()) << "round " << round << ": " << run.status();
    EXPECT_LE(run->peak_gpu_bytes, machine.gpu_bytes);
    EXPECT_GE(run->iteration, planner.forecast().ideal);
  }
  EXPECT_GT(moved, 40u);
}

TEST(BlockMachineTest, HostMemoryAndDiskTogether) {
  const RecordedWorkload recorded = TrainingJob().Recorded(17);
  Machine machine = MachineFor(recorded, 0.5, 2.0, 100 << 20);
  machine.ssd_read = machine.ssd_write = machine.pcie_in / 3;
  RuntimePlanner planner = PlannerFor(recorded, machine);
  while (planner.Improve()) {
  }
  EXPECT_GT(planner.forecast().fetched_host, 0u);
  EXPECT_GT(planner.forecast().fetched_disk, 0u);
  const auto run = CarryOut(recorded, machine, planner.Plan(), 12);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_NEAR(Ratio(run->iteration, planner.forecast().iteration), 1, 0.02);
  EXPECT_LE(run->peak_host_bytes, machine.host_bytes);
  EXPECT_GT(run->traffic.host_to_gpu, 0);
  EXPECT_GT(run->traffic.ssd_to_gpu, 0);
}

// Directions of PCIe that slow each other down make it no faster.
TEST(BlockMachineTest, DirectionsThatShareTakeLonger) {
  const RecordedWorkload recorded = TrainingJob().Recorded(17);
  Machine machine = MachineFor(recorded, 0.5, 0.7, kMaxWorkloadBytes);
  const auto alone = CarryOut(recorded, machine, nullptr);
  machine.pcie_both = {0.6 * machine.pcie_in, 0.6 * machine.pcie_out};
  const auto both = CarryOut(recorded, machine, nullptr);
  ASSERT_TRUE(alone.ok() && both.ok());
  EXPECT_GT(Ratio(both->iteration, alone->iteration), 1.1);
}

TEST(BlockMachineTest, ALaunchThatDoesNotFitIsNamed) {
  const RecordedWorkload recorded = TrainingJob().Recorded();
  Machine machine = MachineFor(recorded, 0.5, 1.0, 0);
  machine.gpu_bytes = 20 << 20;
  const absl::Status status = CarryOut(recorded, machine, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("launch 0 lacks 29360128 bytes"), std::string::npos) << status;
}

}  // namespace
}  // namespace spillway::policy
