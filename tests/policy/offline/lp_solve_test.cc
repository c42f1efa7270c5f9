#include "policy/offline/lp_solve.h"

#include <gtest/gtest.h>

namespace spillway::policy {
namespace {

// x + y is to be most, as x <= 3, y <= 4 and x + 2 y <= 7: 3 and 2.
LpProblem Small() {
  LpProblem problem;
  problem.cost = {-1, -1};
  problem.lower = {0, 0};
  problem.upper = {3, 4};
  LpSum sum;
  sum.Add(0, 1).Add(1, 1).Add(-1, 5).Add(1, 1);
  sum.EndRow(&problem, 0, 7);
  return problem;
}

TEST(LpSumTest, AddsUpAColumnsTermsAndLeavesMissingColumnsOut) {
  const LpProblem problem = Small();
  EXPECT_EQ(problem.rows, (std::vector<int>{0, 0}));
  EXPECT_EQ(problem.columns, (std::vector<int>{0, 1}));
  EXPECT_EQ(problem.values, (std::vector<double>{1, 2}));
  EXPECT_EQ(problem.row_upper, (std::vector<double>{7}));
}

TEST(SolveLpTest, FindsTheBestAndSaysWhenThereIsNone) {
  LpProblem problem = Small();
  ASSERT_TRUE(CheckLpSolver().ok());
  const auto solution = SolveLp(problem);
  ASSERT_TRUE(solution.ok()) << solution.status();
  EXPECT_NEAR(solution->objective, -5, 1e-6);
  EXPECT_NEAR(solution->values[0], 3, 1e-6);
  EXPECT_NEAR(solution->values[1], 2, 1e-6);
  problem.row_lower = {8};
  problem.row_upper = {1e30};
  problem.upper = {3, 2};
  EXPECT_TRUE(absl::IsFailedPrecondition(SolveLp(problem).status()));
}

}  // namespace
}  // namespace spillway::policy
