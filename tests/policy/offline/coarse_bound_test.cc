// The coarse bound: by hand-computed cases, and on the published traces within two points of what the LP says
// (docs/results/policy.md), in every build and within its work.

#include "policy/offline/coarse_bound.h"

#include <gtest/gtest.h>

#include "policy/bound/quick_bound.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

CoarseBound Bound(const Workload& workload, const Machine& machine, Nanos known,
                  LpForm form = LpForm::kAnyPlan) {
  CoarseBoundOptions options;
  options.form = form;
  options.known = known;
  const auto bound = FindCoarseBound(workload, FindLifetimes(workload), machine, options);
  EXPECT_TRUE(bound.ok()) << bound.status();
  return bound.ok() ? *bound : CoarseBound();
}

TEST(CoarseBoundTest, IsTheSumOfTheKernelsWhenEverythingFits) {
  const CoarseBound bound = Bound(MountainWorkload(), PlainMachine(200 * kMega, 0), 300 * kMilli);
  EXPECT_EQ(bound.iteration, 120 * kMilli);
  EXPECT_TRUE(bound.is_near);
  EXPECT_EQ(bound.slots, 0u);
}

// 50 MB leave in 50 ms, of which the kernels between give 40, and come back in 50, of which they give 40.
TEST(CoarseBoundTest, CountsTheWayOutAndTheWayBack) {
  const CoarseBound bound = Bound(MountainWorkload(), PlainMachine(150 * kMega, 1000 * kMega), 500 * kMilli);
  EXPECT_NEAR(static_cast<double>(bound.iteration), 140 * kMilli, 0.5 * kMilli);
  EXPECT_LE(bound.iteration, 140 * kMilli);
  EXPECT_TRUE(bound.is_near);
}

TEST(CoarseBoundTest, IsNotAboveATimeThatSomePlanTakes) {
  const Machine machine = PlainMachine(150 * kMega, 1000 * kMega);
  EXPECT_LE(Bound(MountainWorkload(), machine, 130 * kMilli).iteration, 130 * kMilli);
  const Workload workload = MountainWorkload();
  CoarseBoundOptions options;
  options.known = 119 * kMilli;
  const auto refused = FindCoarseBound(workload, FindLifetimes(workload), machine, options);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
}

TEST(CoarseBoundTest, WithoutWorkItIsTheQuickBoundAndSaysThatItIsNotNear) {
  const Workload workload = G10Workload("vit-1280");
  const Lifetimes lifetimes = FindLifetimes(workload);
  const Machine machine = G10Machine(0);
  CoarseBoundOptions options;
  options.known = 6'424'000'000;
  options.work = 0;
  const auto bound = FindCoarseBound(workload, lifetimes, machine, options);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->iteration, FindQuickBound(workload, lifetimes, machine).Best());
  EXPECT_FALSE(bound->is_near);
}

// A row of docs/results/policy.md or of the LP itself (`spillway simulate --bound lp`, `lp-one-tier`):
// percent of ideal at most, and what the planner reaches.
struct Published {
  const char* trace;
  Bytes gpu, host;
  LpForm form;
  double limit, reached;
};

void PrintTo(const Published& row, std::ostream* out) {
  *out << row.trace << ", GPU " << row.gpu << ", host " << row.host;
}

class PublishedTraceTest : public testing::TestWithParam<Published> {};

TEST_P(PublishedTraceTest, LiesWithinTwoPointsOfTheLp) {
  const Published& row = GetParam();
  const Workload workload = G10Workload(row.trace);
  Machine machine = G10Machine(row.host);
  machine.gpu_bytes = row.gpu;
  const auto ideal = static_cast<double>(workload.IdealTime());
  const CoarseBound bound = Bound(workload, machine, static_cast<Nanos>(100 * ideal / row.reached), row.form);
  const double limit = 100 * ideal / static_cast<double>(bound.iteration);
  EXPECT_GE(limit, row.limit - 0.02) << "above the LP, it would be no bound";
  EXPECT_LE(limit, row.limit + 2);
  // The same holds for the plan's share of the possible.
  EXPECT_NEAR(row.reached / limit * 100, row.reached / row.limit * 100, 2);
  EXPECT_TRUE(bound.is_near);
}

constexpr Bytes kG10 = 40ull << 30, kGibi = 1ull << 30;
// The quick bound of the last two is a time in which no plan without a change of tiers can be: 37.66 and
// 54.04.
INSTANTIATE_TEST_SUITE_P(
    G10, PublishedTraceTest,
    testing::Values(Published{"vit-1280", kG10, 0, LpForm::kAnyPlan, 58.17, 57.84},
                    Published{"vit-1280", kG10, 8 * kGibi, LpForm::kAnyPlan, 100, 97.02},
                    Published{"vit-1280", kG10, 8 * kGibi, LpForm::kKeepTier, 100, 97.02},
                    Published{"vit-1280", kG10, 4 * kGibi, LpForm::kKeepTier, 73.64, 71.96},
                    Published{"vit-1280", 18487963238, 128 * kGibi, LpForm::kAnyPlan, 77.42, 77.06},
                    Published{"vit-1280", 36975926400, 4 * kGibi, LpForm::kKeepTier, 51.95, 45.78},
                    Published{"bert-256", 15384673075, 128 * kGibi, LpForm::kAnyPlan, 94.67, 94.55},
                    Published{"resnet152-1280", kG10, 0, LpForm::kAnyPlan, 65.96, 65.94},
                    Published{"resnet152-1280", kG10, 32 * kGibi, LpForm::kKeepTier, 75.45, 75.29},
                    Published{"resnet152-1280", kG10, 128 * kGibi, LpForm::kAnyPlan, 99.74, 99.69}));

}  // namespace
}  // namespace spillway::policy
