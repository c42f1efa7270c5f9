#include "integration/cli/estimate/smallest_budget.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace spillway::integration {
namespace {

using policy::Bytes;

// Returns the budget that halving tries next; 0: the range is small enough.
Bytes MiddleOf(const BudgetRange& range) {
  if (range.high - range.low <= range.near) return 0;
  const Bytes middle = (range.low + (range.high - range.low) / 2) / range.unit * range.unit;
  return middle <= range.low || middle >= range.high ? 0 : middle;
}

// Adds the middles of the next halvings, whichever way they go.
void AddMiddles(const BudgetRange& range, int halvings, std::vector<Bytes>* middles) {
  const Bytes middle = MiddleOf(range);
  if (middle == 0 || halvings == 0) return;
  middles->push_back(middle);
  BudgetRange lower = range, upper = range;
  lower.high = upper.low = middle;
  AddMiddles(lower, halvings - 1, middles);
  AddMiddles(upper, halvings - 1, middles);
}

// Returns the number of halvings for which there are threads: n halvings are 2^n - 1 middles.
int HalvingsAtOnce(size_t ends, size_t threads) {
  int halvings = 1;
  while (((size_t{2} << halvings) - 1) * ends <= threads) ++halvings;
  return halvings;
}

}  // namespace

Bytes SmallestBudget(const BudgetRange& range, size_t ends,
                     const std::function<bool(Bytes budget, size_t end)>& good, Workers* workers) {
  const int halvings = HalvingsAtOnce(ends, workers->threads());
  BudgetRange left = range;
  while (MiddleOf(left) != 0) {
    std::vector<Bytes> middles;
    AddMiddles(left, halvings, &middles);
    std::vector<std::atomic<bool>> too_small(middles.size());  // each is only ever set
    workers->ForEach("looking for the smallest GPU memory", middles.size() * ends, [&](size_t i) {
      std::atomic<bool>& small = too_small[i / ends];
      if (!small && !good(middles[i / ends], i % ends)) small = true;
    });
    for (int n = 0; n < halvings; ++n) {
      const auto found = std::ranges::find(middles, MiddleOf(left));
      if (found == middles.end()) break;
      (too_small[static_cast<size_t>(found - middles.begin())] ? left.low : left.high) = *found;
    }
  }
  return left.high;
}

}  // namespace spillway::integration
