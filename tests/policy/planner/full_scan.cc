#include "tests/policy/planner/full_scan.h"

#include <algorithm>
#include <numeric>

namespace spillway::policy {

std::vector<uint32_t> SelectVictims(std::span<const VictimCandidate> candidates, Bytes bytes_needed) {
  const auto leaves_later = [candidates](uint32_t a, uint32_t b) {
    const VictimCandidate& x = candidates[a];
    const VictimCandidate& y = candidates[b];
    if (x.next_use != y.next_use) return x.next_use < y.next_use;  // kNever is greater than any index
    if (x.last_use != y.last_use) return x.last_use > y.last_use;
    return a > b;
  };
  // A heap: few of many are wanted, and a launch waits for the answer.
  std::vector<uint32_t> heap(candidates.size());
  std::iota(heap.begin(), heap.end(), 0u);
  std::ranges::make_heap(heap, leaves_later);
  std::vector<uint32_t> order;
  for (Bytes together = 0; together < bytes_needed && !heap.empty(); heap.pop_back()) {
    std::ranges::pop_heap(heap, leaves_later);
    order.push_back(heap.back());
    together += candidates[heap.back()].bytes;
  }
  return order;
}

}  // namespace spillway::policy
