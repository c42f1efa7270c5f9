#include "policy/planner/plan_search.h"

#include <gtest/gtest.h>

#include <random>

#include "policy/simulator/simulator.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

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

// Plans that promote are tried if there are two tiers and pieces; whole tensors stand for the run time, which
// does not.
TEST(PlanSearchTest, PromotesWhereThatIsFaster) {
  const Workload workload = G10Workload("vit-1280");
  for (const Case& it : {Case{"vit-1280", 8ull << 30, 99}, Case{"vit-1280", 4ull << 30, 72.5}}) {
    TransferPlan plan;
    Machine machine = G10Machine(it.host);
    const Execution run = Planned(workload, machine, &plan);
    EXPECT_TRUE(plan.promotes);
    EXPECT_GT(run.traffic.ssd_to_host, 0);
    EXPECT_LE(run.peak_host_bytes, it.host);
    EXPECT_GE(run.PercentOfIdeal(), it.least);
    plan.promotes = false;
    const auto without =
        Execute(workload, FindLifetimes(workload, PlanSearch::LeastBytes(machine)), machine, plan, {});
    ASSERT_TRUE(without.ok());
    EXPECT_GT(without->iteration, run.iteration);
    machine.piece_bytes = 0;
    Planned(workload, machine, &plan);
    EXPECT_FALSE(plan.promotes);
  }
}

TEST(PlanSearchTest, SameInputSamePlan) {
  const Workload workload = G10Workload("resnet152-1280");
  TransferPlan first, second;
  const Execution a = Planned(workload, G10Machine(32ull << 30), &first);
  const Execution b = Planned(workload, G10Machine(32ull << 30), &second);
  EXPECT_EQ(a.iteration_ends, b.iteration_ends);
  ASSERT_EQ(first.evictions.size(), second.evictions.size());
  for (size_t i = 0; i < first.evictions.size(); ++i) {
    EXPECT_EQ(first.evictions[i].interval, second.evictions[i].interval);
    EXPECT_EQ(first.evictions[i].from, second.evictions[i].from);
    EXPECT_EQ(first.evictions[i].tier, second.evictions[i].tier);
  }
}

// The caller's trial judges the plans.
TEST(PlanSearchTest, TheTrialDecides) {
  const Workload workload = G10Workload("vit-1280");
  const Machine machine = G10Machine(0);
  const Lifetimes lifetimes = FindLifetimes(workload, PlanSearch::LeastBytes(machine));
  SearchOptions options;
  uint32_t tried = 0;
  options.trial = [&](const Machine& on, const TransferPlan&) -> absl::StatusOr<Execution> {
    EXPECT_EQ(on.gpu_bytes, machine.gpu_bytes);
    Execution execution;
    execution.iteration = ++tried == 2 ? 5'000'000'000 : 6'000'000'000;
    execution.read_waits.assign(workload.kernels.size(), 0);
    return execution;
  };
  PlanSearch search(workload, lifetimes, machine, options);
  while (*search.Improve()) {
  }
  EXPECT_EQ(search.trials(), tried);
  EXPECT_EQ(search.best_iteration(), 5'000'000'000);
  options.trial = [](const Machine&, const TransferPlan&) { return absl::ResourceExhaustedError("no"); };
  EXPECT_EQ(PlanSearch(workload, lifetimes, machine, options).Improve().status().message(), "no");
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

// Two drives of 2.4e9 and 0.8e9 carry the traffic of a single SSD of 3.2e9 equally well.
TEST(PlanSearchTest, UnequalDrivesComeNearTheSumOfTheirRates) {
  const Machine one = G10Machine(0);
  const Machine two = WithDrives(one, {{2.4e9, 2.4e9}, {0.8e9, 0.8e9}});
  for (const char* name : {"bert-256", "vit-1280", "resnet152-1280"}) {
    const Workload workload = G10Workload(name);
    const Lifetimes lifetimes = FindLifetimes(workload, PlanSearch::LeastBytes(one));
    double percent[2];
    for (int i = 0; i < 2; ++i) {
      PlanSearch planner(workload, lifetimes, i == 0 ? one : two, {});
      for (auto more = planner.Improve(); more.ok() && *more;) more = planner.Improve();
      percent[i] =
          100.0 * static_cast<double>(workload.IdealTime()) / static_cast<double>(planner.best_iteration());
    }
    EXPECT_GE(percent[1], percent[0] - 0.3) << name;
  }
}

}  // namespace
}  // namespace spillway::policy
