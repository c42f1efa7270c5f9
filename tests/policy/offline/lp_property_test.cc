// Random workloads and machines: no policy's steady iteration is shorter than the LP bound, and the LP is at
// least as tight as the quick bound.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "policy/bound/quick_bound.h"
#include "policy/offline/benefit_choice.h"
#include "policy/offline/coarse_bound.h"
#include "policy/offline/coarse_timeline.h"
#include "policy/offline/lp_bound.h"
#include "policy/offline/lp_plan.h"
#include "policy/planner/plan_search.h"
#include "policy/planner/tier_choice.h"
#include "policy/planner/transfer_choice.h"
#include "policy/simulator/simulator.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

constexpr uint32_t kIterations = 14;
constexpr double kTolerance = 1e-5;  // of an iteration: the solvers'

Machine RandomMachine(uint32_t seed, int64_t peak) {
  std::mt19937 random(seed + 1000);
  const auto one_of = [&random](std::initializer_list<double> list) {
    return *(list.begin() + random() % list.size());
  };
  Machine machine;
  machine.gpu_bytes = static_cast<Bytes>(static_cast<double>(peak) * one_of({0.4, 0.55, 0.7, 0.85}));
  machine.host_bytes = static_cast<Bytes>(one_of({0, 30e6, 100e6, 1e10}));
  machine.pcie_in = one_of({1e9, 4e9, 16e9});
  machine.pcie_out = one_of({1e9, 4e9, 16e9});
  machine.ssd_read = one_of({0.5e9, 2e9});
  machine.ssd_write = one_of({0.5e9, 2e9});
  machine.ssd_shared = random() % 4 == 0;
  machine.piece_bytes = random() % 2 == 0 ? 0 : 2 << 20;
  return machine;
}

struct Case {
  Workload workload;
  Lifetimes lifetimes;
  Machine machine;
};

absl::StatusOr<TransferPlan> PlanOf(const std::string& policy, const Case& one) {
  TransferPlan plan;
  for (const WorkloadKernel& kernel : one.workload.kernels) plan.kernel_times.push_back(kernel.duration);
  if (policy == "lp") return PlanByLp(one.workload, one.lifetimes, one.machine);
  if (policy == "plan") {
    PlanSearch search(one.workload, one.lifetimes, one.machine, {});
    for (;;) {
      const auto more = search.Improve();
      if (!more.ok()) return more.status();
      if (!*more) return search.best();
    }
  }
  if (policy == "lru") return plan;
  ChoiceOptions choice;
  choice.budget_bytes = one.machine.gpu_bytes;
  choice.piece_bytes = one.machine.piece_bytes;
  choice.write_rate = one.machine.pcie_out;
  choice.write_ledger = choice.early_writes = plan.early_writes = false;
  plan.evictions = policy == "g10" ? ChooseByBenefit(one.workload, one.lifetimes, plan.kernel_times, choice)
                                   : ChooseTransfers(one.workload, one.lifetimes, plan.kernel_times, choice);
  ChooseTiers(one.workload, one.lifetimes, one.machine, TierOrder::kFarthestFirst, &plan);
  return plan;
}

// The time of an iteration once four in a row take equally long; 0 if they never do. Before that, an
// iteration may live on what an earlier one prepared.
Nanos SteadyIteration(const std::string& policy, const Case& one, bool* changes_tier = nullptr) {
  auto plan = PlanOf(policy, one);
  if (!plan.ok()) return 0;
  ExecutionOptions options;
  options.iterations = kIterations;
  if (policy == "lru") {
    options.prefetch = false;
    options.victims = VictimOrder::kLeastRecentlyUsed;
  }
  const auto run = Execute(one.workload, one.lifetimes, one.machine, *plan, options);
  if (!run.ok()) return 0;
  if (changes_tier != nullptr) *changes_tier = run->evictions_in_need > 0 || plan->promotes;
  const std::vector<Nanos>& ends = run->iteration_ends;
  for (size_t i = ends.size() - 4; i < ends.size(); ++i) {
    if (std::abs((ends[i] - ends[i - 1]) - run->iteration) > 4) return 0;
  }
  return run->iteration;
}

// The value of the LP on a timeline of at most so many slots, without the quick bound.
double ValueOf(const Case& one, uint32_t most_slots, LpTiers tiers) {
  const LpTimeline fine = MakeLpTimeline(one.workload, one.lifetimes, one.machine);
  if (fine.slots.empty()) return 0;
  const LpModel model = MakeLpModel(CoarseTimeline(fine, most_slots), one.machine, tiers);
  const auto solution = SolveLp(model.problem);
  EXPECT_TRUE(solution.ok()) << solution.status();
  return solution.ok() ? solution->objective * model.nano_unit : 0;
}

// Leaving points out of a timeline only helps plans, whatever the slots. The bound that needs no solver lies
// below the LP's, and near it where it reports that.
void JudgeCoarse(const Case& one, uint32_t seed, const LpBound& lp, LpForm form) {
  const double slack = kTolerance * static_cast<double>(lp.iteration) + 100;
  const LpTiers tiers = one.machine.host_bytes == 0 ? LpTiers::kSsdOnly
                        : form == LpForm::kKeepTier ? LpTiers::kKeep
                                                    : LpTiers::kMayChange;
  const double value = ValueOf(one, ~0u, tiers);
  for (const uint32_t slots : {2u + seed % 3, 7u + seed % 9})
    EXPECT_LE(ValueOf(one, slots, tiers), value + slack) << "seed " << seed << ", slots " << slots;
  CoarseBoundOptions options;
  options.form = form;
  options.known = 3 * lp.iteration;
  options.work = 10'000'000;
  const auto coarse = FindCoarseBound(one.workload, one.lifetimes, one.machine, options);
  ASSERT_TRUE(coarse.ok()) << coarse.status();
  EXPECT_LE(static_cast<double>(coarse->iteration), static_cast<double>(lp.iteration) + slack) << seed;
  if (coarse->is_near) {
    EXPECT_GE(static_cast<double>(coarse->iteration), 0.98 * static_cast<double>(lp.iteration) - slack)
        << seed;
  }
}

// With `shared`, the directions of PCIe slow each other down, by what depends on the seed.
void JudgeAll(uint32_t seeds, bool shared) {
  uint32_t bounded = 0, judged = 0;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    Case one;
    one.workload = RandomWorkload(seed);
    one.lifetimes = FindLifetimes(one.workload);
    one.machine = RandomMachine(seed, one.lifetimes.PeakLive());
    constexpr LinkRates kCorners[] = {{0.5, 0.5}, {0.35, 0.9}, {0.45, 0.98}, {0.85, 0.85}, {1, 0.3}};
    const LinkRates corner = kCorners[seed % std::size(kCorners)];
    if (shared) one.machine.pcie_both = {corner.in * one.machine.pcie_in, corner.out * one.machine.pcie_out};
    const auto any = FindLpBound(one.workload, one.lifetimes, one.machine, LpForm::kAnyPlan);
    const auto keep = FindLpBound(one.workload, one.lifetimes, one.machine, LpForm::kKeepTier);
    ASSERT_EQ(any.ok(), keep.ok()) << seed << ": " << any.status() << ", " << keep.status();
    if (!any.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(any.status())) << seed << ": " << any.status();
      EXPECT_EQ(SteadyIteration("plan", one), 0) << seed;
      continue;
    }
    ++bounded;
    const double least = static_cast<double>(any->iteration);
    const double slack = kTolerance * least + 100;
    const double quick = static_cast<double>(FindQuickBound(one.workload, one.lifetimes, one.machine).Best());
    EXPECT_GE(least + slack, quick) << seed;
    EXPECT_GE(static_cast<double>(keep->iteration) + slack, least) << seed;
    JudgeCoarse(one, seed, *any, LpForm::kAnyPlan);
    JudgeCoarse(one, seed, *keep, LpForm::kKeepTier);
    for (const char* policy : {"plan", "lru", "belady", "g10", "lp"}) {
      bool changes_tier = false;
      const Nanos steady = SteadyIteration(policy, one, &changes_tier);
      if (steady == 0) continue;
      ++judged;
      // Parts that leave in need may be written twice, and to another tier; promoted ones change their tier.
      const Nanos bound = changes_tier ? any->iteration : std::max(any->iteration, keep->iteration);
      EXPECT_GE(static_cast<double>(steady) + slack, static_cast<double>(bound))
          << "seed " << seed << ", policy " << policy;
    }
  }
  EXPECT_GT(bounded, seeds / 2);
  EXPECT_GT(judged, 5 * seeds / 3);
}

TEST(LpPropertyTest, NoPolicyBeatsItAndTheQuickBoundIsNoTighter) { JudgeAll(150, /*shared=*/false); }

TEST(LpPropertyTest, NorWhereDirectionsShare) { JudgeAll(60, /*shared=*/true); }

}  // namespace
}  // namespace spillway::policy
