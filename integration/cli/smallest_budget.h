// SmallestBudget: the search of `spillway estimate --smallest`, by halving. Looks at what it may need next as
// well, where there are threads for it; the answer is that of one thread. Prints nothing.

#ifndef SPILLWAY_INTEGRATION_CLI_SMALLEST_BUDGET_H_
#define SPILLWAY_INTEGRATION_CLI_SMALLEST_BUDGET_H_

#include <cstddef>
#include <functional>

#include "integration/cli/common/workers.h"
#include "policy/model/units.h"

namespace spillway::integration {

struct BudgetRange {
  policy::Bytes low = 0, high = 0;  // the first is too small, the second is enough
  policy::Bytes near = 0;           // how far apart they may stay
  policy::Bytes unit = 1;           // budgets are multiples of it
};

// The smallest budget that was found enough: for each of `ends`, from 0 on, `good` says so. A budget that is
// too small for one end is not asked of for all. What is good is taken to stay good with more. `good` is
// called on several threads at once.
policy::Bytes SmallestBudget(const BudgetRange& range, size_t ends,
                             const std::function<bool(policy::Bytes budget, size_t end)>& good,
                             Workers* workers);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SMALLEST_BUDGET_H_
