// LpSum: columns with their factors, collected until they become a row of an LpProblem. Private to lp_model.cc.

#ifndef SPILLWAY_POLICY_OFFLINE_LP_SUM_H_
#define SPILLWAY_POLICY_OFFLINE_LP_SUM_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "policy/offline/lp_model.h"

namespace spillway::policy {

class LpSum {
 public:
  LpSum& Add(int column, double value) {
    if (column >= 0) terms_.emplace_back(column, value);
    return *this;
  }
  // Columns may have been added more than once.
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

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_LP_SUM_H_
