// SmallestBudget: the search of `spillway estimate --smallest`, by halving. It also tries what it may need
// next if there are threads for it; the answer is that of one thread. Prints nothing; cannot fail.

#ifndef SPILLWAY_INTEGRATION_CLI_ESTIMATE_SMALLEST_BUDGET_H_
#define SPILLWAY_INTEGRATION_CLI_ESTIMATE_SMALLEST_BUDGET_H_

#include <cstddef>
#include <functional>

#include "integration/cli/common/workers.h"
#include "policy/model/units.h"

namespace spillway::integration {

struct BudgetRange {
  policy::Bytes low = 0, high = 0;  // the first is too small, the second is enough
  policy::Bytes near = 0;           // the distance at which the search ends
  policy::Bytes unit = 1;           // budgets are multiples of it
};

// Returns the smallest budget that was found enough: `good` accepts it for each of `ends`, from 0 on. A
// budget that is too small for one end need not be tried for all. More memory is assumed to stay good. `good`
// is called on several threads at once.
policy::Bytes SmallestBudget(const BudgetRange& range, size_t ends,
                             const std::function<bool(policy::Bytes budget, size_t end)>& good,
                             Workers* workers);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_ESTIMATE_SMALLEST_BUDGET_H_
