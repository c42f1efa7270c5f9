// Plans as the runner carries them out: what RuntimePlanner promises is kept, and it beats moving on demand.

#include "tests/policy/planner/plan_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "policy/planner/plan_search.h"
#include "policy/planner/runtime_planner.h"
#include "tests/policy/job_traces.h"
#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

// A GPU of `part` of the job's peak, and links that move the peak `turns` times in an iteration without
// waits.
ReplayOptions OptionsFor(const RecordedWorkload& recorded, double part, double turns, Bytes host) {
  ReplayOptions options;
  const double peak = static_cast<double>(FindLifetimes(recorded.workload).PeakLive());
  Machine& machine = options.machine;
  machine.gpu_bytes = static_cast<Bytes>(peak * part);
  machine.host_bytes = host;
  machine.pcie_in = turns * peak * 1e9 / static_cast<double>(recorded.workload.IdealTime());
  machine.pcie_out = machine.ssd_read = machine.ssd_write = machine.pcie_in;
  return options;
}

RuntimePlanner PlannerFor(const RecordedWorkload& recorded, const ReplayOptions& options) {
  RuntimeMachine machine;
  machine.machine = options.machine;
  machine.run_ahead.launches = 3;
  return RuntimePlanner(recorded, machine);
}

// Wherever the recording of the iteration begins, whether gradients live over its end or not.
TEST(PlanReplayTest, PlansKeepTheirPromiseAndBeatMovingOnDemand) {
  for (const bool kept : {false, true}) {
    for (const uint32_t less : {0u, 17u, 60u}) {
      for (const double part : {0.5, 0.7}) {
        for (const double turns : {0.5, 1.0, 2.0}) {
          SCOPED_TRACE(testing::Message() << kept << " " << less << " " << part << " " << turns);
          TrainingJob job;
          job.gradients_kept = kept;
          const RecordedWorkload recorded = job.Recorded(less);
          const ReplayOptions options = OptionsFor(recorded, part, turns, 0);
          RuntimePlanner planner = PlannerFor(recorded, options);
          ASSERT_NE(planner.Plan(), nullptr);
          const Nanos first = ReplayPlan(recorded, planner.Plan().get(), options).iteration;
          while (planner.Improve()) {
          }
          const auto plan = planner.Plan();
          EXPECT_LE(*std::ranges::max_element(plan->expected_bytes),
                    static_cast<int64_t>(plan->budget_bytes));
          const Replay replay = ReplayPlan(recorded, plan.get(), options);
          ASSERT_FALSE(replay.stuck);
          EXPECT_EQ(replay.in_need, 0u);
          EXPECT_LE(replay.peak, options.machine.gpu_bytes);
          EXPECT_LE(static_cast<double>(replay.iteration),
                    1.15 * static_cast<double>(planner.forecast().iteration));
          EXPECT_GE(replay.iteration, planner.forecast().bound);
          EXPECT_EQ(replay.fetched, planner.forecast().fetched_disk);
          const Replay lru = ReplayPlan(recorded, nullptr, options);
          ASSERT_FALSE(lru.stuck);
          // Links that could move the peak twice leave little to gain.
          const double most = turns < 2 ? 0.92 : 0.97;
          EXPECT_LT(static_cast<double>(replay.iteration), most * static_cast<double>(lru.iteration));
          EXPECT_LT(static_cast<double>(first), most * static_cast<double>(lru.iteration));
        }
      }
    }
  }
}

// Not knowing what writes costs time, not correctness.
TEST(PlanReplayTest, WithoutWriteFactsPlansAreCarriedOutToo) {
  const RecordedWorkload recorded = TrainingJob().Recorded(17, /*facts=*/false);
  const ReplayOptions options = OptionsFor(recorded, 0.6, 1.0, 0);
  RuntimePlanner planner = PlannerFor(recorded, options);
  while (planner.Improve()) {
  }
  const Replay replay = ReplayPlan(recorded, planner.Plan().get(), options);
  ASSERT_FALSE(replay.stuck);
  EXPECT_LE(replay.peak, options.machine.gpu_bytes);
  EXPECT_LT(replay.iteration, ReplayPlan(recorded, nullptr, options).iteration);
}

// When activations go, memory dips before the update: the optimiser's states come in there, not when the
// update asks.
TEST(PlanReplayTest, OptimiserStatesComeInWhileMemoryDips) {
  const TrainingJob job;
  const RecordedWorkload recorded = job.Recorded();
  const ReplayOptions options = OptionsFor(recorded, 0.7, 2.0, 0);
  RuntimePlanner planner = PlannerFor(recorded, options);
  while (planner.Improve()) {
  }
  const Replay replay = ReplayPlan(recorded, planner.Plan().get(), options);
  ASSERT_FALSE(replay.stuck);
  const uint32_t update = job.IterationLaunches() - job.layers;
  const uint32_t backward = job.layers * job.launches;
  std::set<uint32_t> states, ahead;  // used by nothing but the update
  const Lifetimes lifetimes = FindLifetimes(recorded.workload);
  for (uint32_t t = 0; t < recorded.workload.tensors.size(); ++t) {
    if (recorded.workload.tensors[t].persistent && lifetimes.uses[t].front() >= update) states.insert(t);
  }
  ASSERT_EQ(states.size(), 2 * job.layers);
  for (const FetchStart& fetch : replay.last_fetches) {
    if (states.contains(fetch.tensor) && fetch.running >= backward && fetch.running < update)
      ahead.insert(fetch.tensor);
  }
  // Weights and gradients take 192 MiB at the end of the backward pass, of a budget of 320 that half of the
  // states need.
  EXPECT_GE(ahead.size(), job.layers / 2);
  EXPECT_LT(static_cast<double>(replay.iteration), 1.1 * static_cast<double>(planner.forecast().ideal));
}

// What `spillway simulate --piece 0` finds for the recorded iteration is what the runtime's planner finds,
// less its margin.
TEST(PlanReplayTest, TheForecastAgreesWithTheSimulator) {
  const RecordedWorkload recorded = TrainingJob().Recorded(17);
  for (const double part : {0.5, 0.7}) {
    for (const double turns : {0.5, 1.0, 2.0}) {
      RuntimeMachine machine;
      machine.machine = OptionsFor(recorded, part, turns, 0).machine;
      machine.machine.piece_bytes = 0;
      RuntimePlanner planner(recorded, machine);
      while (planner.Improve()) {
      }
      const Lifetimes lifetimes = FindLifetimes(recorded.workload, PlanSearch::LeastBytes(machine.machine));
      PlanSearch search(recorded.workload, lifetimes, machine.machine, SearchOptions());
      while (search.Improve().value()) {
      }
      const double simulated = static_cast<double>(search.best_iteration());
      EXPECT_LE(static_cast<double>(planner.forecast().iteration), 1.1 * simulated) << part << " " << turns;
      EXPECT_GE(static_cast<double>(planner.forecast().iteration), 0.95 * simulated) << part << " " << turns;
    }
  }
}

// Random jobs, recorded from anywhere in their iteration: whatever the plan, the runner gets through.
TEST(PlanReplayTest, PlansOfRandomJobsAreCarriedOut) {
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
    ReplayOptions options = OptionsFor(recorded, 0.4 + 0.1 * static_cast<double>(random() % 6), 1.0, 0);
    RuntimePlanner planner = PlannerFor(recorded, options);
    for (int slice = 0; slice < 4 && planner.Improve(); ++slice) {
    }
    if (planner.Plan() == nullptr) continue;
    moved += planner.Plan()->ops.empty() ? 0 : 1;
    const Replay replay = ReplayPlan(recorded, planner.Plan().get(), options);
    EXPECT_FALSE(replay.stuck) << "round " << round;
    EXPECT_LE(replay.peak, options.machine.gpu_bytes);
    EXPECT_GE(replay.iteration, planner.forecast().ideal);
  }
  EXPECT_GT(moved, 40u);
}

TEST(PlanReplayTest, HostMemoryAndDiskTogether) {
  const RecordedWorkload recorded = TrainingJob().Recorded(17);
  ReplayOptions options = OptionsFor(recorded, 0.5, 2.0, 100 << 20);
  options.machine.ssd_read = options.machine.ssd_write = options.machine.pcie_in / 3;
  RuntimePlanner planner = PlannerFor(recorded, options);
  while (planner.Improve()) {
  }
  EXPECT_GT(planner.forecast().fetched_host, 0u);
  EXPECT_GT(planner.forecast().fetched_disk, 0u);
  const Replay replay = ReplayPlan(recorded, planner.Plan().get(), options);
  ASSERT_FALSE(replay.stuck);
  EXPECT_LE(static_cast<double>(replay.iteration), 1.2 * static_cast<double>(planner.forecast().iteration));
}

}  // namespace
}  // namespace spillway::policy
