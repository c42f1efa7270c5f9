// The answers of a build without CLP, which has no solver.

#include "policy/offline/lp_solve.h"

#include <gtest/gtest.h>

#include "policy/model/lifetimes.h"
#include "policy/offline/coarse_bound.h"
#include "policy/offline/lp_bound.h"
#include "policy/offline/lp_plan.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(NoLpSolverTest, WhatNeedsOneSaysThatItIsMissing) {
  const Workload workload = MountainWorkload();
  const Lifetimes lifetimes = FindLifetimes(workload);
  for (const Bytes gpu : {150 * kMega, 1000 * kMega}) {  // whether a programme is to be solved or not
    const Machine machine = PlainMachine(gpu, 0);
    const absl::Status bound = FindLpBound(workload, lifetimes, machine, LpForm::kAnyPlan).status();
    const absl::Status plan = PlanByLp(workload, lifetimes, machine).status();
    for (const absl::Status& status : {CheckLpSolver(), SolveLp({}).status(), bound, plan}) {
      EXPECT_TRUE(absl::IsUnimplemented(status));
      EXPECT_EQ(status.message(), "the LP is not available: this build has no CLP");
    }
  }
}

TEST(NoLpSolverTest, TheCoarseBoundNeedsNone) {
  const Workload workload = MountainWorkload();
  CoarseBoundOptions options;
  options.known = 500 * kMilli;
  const auto bound =
      FindCoarseBound(workload, FindLifetimes(workload), PlainMachine(150 * kMega, 1000 * kMega), options);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_NEAR(static_cast<double>(bound->iteration), 140 * kMilli, kMilli);
}

}  // namespace
}  // namespace spillway::policy
