#include "policy/bound/traffic_bound.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace spillway::policy {
namespace {

// The walk settles within a few repeats; an average over this many is a bound in any case.
constexpr int kMaxRepeats = 16;

std::span<const IterationUse> UsesAt(const IterationUses& iteration, uint32_t position) {
  return std::span(iteration.uses)
      .subspan(iteration.first_use[position],
               iteration.first_use[position + 1] - iteration.first_use[position]);
}

// Whether any part of a block may leave, or only all of it.
enum class Parts : uint8_t { kAny, kWhole };

// One walk over repeats of the iteration. The excess over the budget leaves, farthest next use first. No
// schedule is cheaper if any part may leave. Each launch needs as many bytes away as exceed the budget, and a
// byte that is away over an idle interval costs one byte, however long the interval. It is optimal to cover
// points by intervals of equal cost from left to right, taking the interval that reaches farthest first. The
// walk begins with everything away free of charge, which only lowers the cost: the cost of the first n
// repeats, divided by n, bounds the average of any schedule.
//
// Parts are parts of what is copied. Only some bytes of a block's last chunk may be copied, and they cost
// less than the memory that they free. A walk with any parts therefore counts memory, too, by the bytes that
// are copied; less than that really fits.
class Walk {
 public:
  Walk(const IterationUses& iteration, Bytes budget, Parts parts)
      : iteration_(iteration),
        budget_(budget),
        parts_(parts),
        present_(iteration.blocks.size(), 0),
        until_(iteration.blocks.size(), 0) {}

  // Returns the bytes that leave during the next repeat and are used again. Each launch's own blocks must
  // fit.
  Bytes RunIteration() {
    Bytes left = 0;
    for (uint32_t position = 0; position < iteration_.launches; ++position, ++now_) left += Launch(position);
    return left;
  }
  // Returns the bytes present of each block. If they are equal after two repeats, what lies between comes
  // again and again.
  const std::vector<Bytes>& state() const { return present_; }

 private:
  Bytes Launch(uint32_t position) {
    const auto uses = UsesAt(iteration_, position);
    for (const IterationUse& use : uses) {
      candidates_.erase({until_[use.block], use.block});
      const IterationUses::Block& block = iteration_.blocks[use.block];
      const Bytes bytes = parts_ == Parts::kWhole ? block.bytes : block.copied_bytes;
      total_ += bytes - present_[use.block];
      present_[use.block] = bytes;
    }
    const Bytes left = total_ > budget_ ? Leave(total_ - budget_) : 0;
    for (const IterationUse& use : uses) {
      if (use.gone_at != 0) {  // freed before it is used again: its bytes need not come back
        total_ -= std::exchange(present_[use.block], 0);
        continue;
      }
      until_[use.block] = now_ - position + use.next_use;
      candidates_.insert({until_[use.block], use.block});
    }
    return left;
  }

  // Makes `wanted` bytes leave, as far as blocks may. Returns how many of them are copied.
  Bytes Leave(Bytes wanted) {
    Bytes left = 0;
    Bytes copied = 0;
    while (left < wanted && !candidates_.empty()) {
      const auto farthest = std::prev(candidates_.end());
      Bytes& present = present_[farthest->second];
      const Bytes part = parts_ == Parts::kWhole ? present : std::min(present, wanted - left);
      present -= part;
      left += part;
      copied += parts_ == Parts::kWhole ? iteration_.blocks[farthest->second].copied_bytes : part;
      if (present == 0) candidates_.erase(farthest);
    }
    total_ -= left;
    return copied;
  }

  const IterationUses& iteration_;
  const Bytes budget_;
  const Parts parts_;
  std::vector<Bytes> present_;
  std::vector<uint64_t> until_;                         // time of the next use
  std::set<std::pair<uint64_t, uint32_t>> candidates_;  // present blocks that the launch now does not use
  Bytes total_ = 0;                                     // of present_
  uint64_t now_ = 0;
};

// Returns the bytes fetched in a repeat, in the long-run average.
Bytes Fetched(const IterationUses& iteration, Bytes budget, Parts parts) {
  Walk walk(iteration, budget, parts);
  std::vector<std::vector<Bytes>> states;  // after each repeat
  std::vector<Bytes> costs = {0};          // of the first n repeats
  for (int repeat = 0; repeat < kMaxRepeats; ++repeat) {
    costs.push_back(costs.back() + walk.RunIteration());
    const auto same = std::ranges::find(states, walk.state());
    if (same != states.end()) {
      const auto earlier = static_cast<size_t>(same - states.begin()) + 1;
      return (costs.back() - costs[earlier]) / (costs.size() - 1 - earlier);
    }
    states.push_back(walk.state());
  }
  return costs.back() / kMaxRepeats;
}

}  // namespace

Bytes LargestSetOf(const IterationUses& iteration) {
  Bytes largest = 0;
  for (uint32_t position = 0; position < iteration.launches; ++position) {
    Bytes bytes = 0;
    for (const IterationUse& use : UsesAt(iteration, position)) bytes += iteration.blocks[use.block].bytes;
    largest = std::max(largest, bytes);
  }
  return largest;
}

IterationTraffic TrafficOf(const IterationUses& iteration, Bytes budget_bytes) {
  IterationTraffic traffic;
  traffic.possible = LargestSetOf(iteration) <= budget_bytes;
  if (!traffic.possible) return traffic;
  traffic.least_fetched_bytes = Fetched(iteration, budget_bytes, Parts::kAny);
  traffic.whole_block_fetched_bytes = Fetched(iteration, budget_bytes, Parts::kWhole);
  return traffic;
}

}  // namespace spillway::policy
