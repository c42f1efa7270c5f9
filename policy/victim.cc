#include "policy/victim.h"

#include <algorithm>
#include <numeric>

namespace spillway::policy {

std::vector<uint32_t> SelectVictims(std::span<const VictimCandidate> candidates, Bytes bytes_needed) {
  std::vector<uint32_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [candidates](uint32_t a, uint32_t b) {
    const VictimCandidate& x = candidates[a];
    const VictimCandidate& y = candidates[b];
    if (x.next_use != y.next_use) return x.next_use > y.next_use;  // kNever is greater than any index
    return x.last_use < y.last_use;
  });
  Bytes together = 0;
  size_t count = 0;
  while (count < order.size() && together < bytes_needed) together += candidates[order[count++]].bytes;
  order.resize(count);
  return order;
}

}  // namespace spillway::policy
