// LpProblem: a linear program as data, and SolveLp, the only place that knows the solver (COIN-OR CLP). A
// build without CLP has everything except the solver, and reports that. One thread at a time per problem.

#ifndef SPILLWAY_POLICY_OFFLINE_LP_SOLVE_H_
#define SPILLWAY_POLICY_OFFLINE_LP_SOLVE_H_

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spillway::policy {

// Minimize cost * x with lower <= x <= upper and row_lower <= matrix * x <= row_upper; the matrix is given by
// entries, each place once. Infinite bounds are infinite doubles.
struct LpProblem {
  std::vector<double> cost, lower, upper;
  std::vector<double> row_lower, row_upper;
  std::vector<int> rows, columns;
  std::vector<double> values;
};

// Columns with their factors, collected until they become a row of a problem.
class LpSum {
 public:
  // Column -1 stands for a variable that does not exist.
  LpSum& Add(int column, double value) {
    if (column >= 0) terms_.emplace_back(column, value);
    return *this;
  }
  // Appends the sum as a row between `lower` and `upper`, and starts over. Columns may have been added more
  // than once: their factors are added up.
  void EndRow(LpProblem* problem, double lower, double upper) {
    std::sort(terms_.begin(), terms_.end());
    const int row = static_cast<int>(problem->row_lower.size());
    for (size_t i = 0; i < terms_.size();) {
      double value = 0;
      const int column = terms_[i].first;
      for (; i < terms_.size() && terms_[i].first == column; ++i) value += terms_[i].second;
      if (value == 0) continue;
      problem->rows.push_back(row);
      problem->columns.push_back(column);
      problem->values.push_back(value);
    }
    problem->row_lower.push_back(lower);
    problem->row_upper.push_back(upper);
    terms_.clear();
  }

 private:
  std::vector<std::pair<int, double>> terms_;
};

struct LpSolution {
  double objective = 0;        // cost * x
  std::vector<double> values;  // of the columns
};

// Returns Unimplemented, with what is missing, if the build has no solver.
absl::Status CheckLpSolver();

// FailedPrecondition: no solution exists. Internal: the solver gave up. Unimplemented: as for CheckLpSolver.
// Prints nothing.
absl::StatusOr<LpSolution> SolveLp(const LpProblem& problem);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_LP_SOLVE_H_
