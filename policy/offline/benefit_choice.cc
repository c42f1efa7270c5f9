#include "policy/offline/benefit_choice.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace spillway::policy {
namespace {

// The relief that an eviction gives to overfull kernels, in bytes x time.
class Excess {
 public:
  Excess(const std::vector<int64_t>& live, const std::vector<Nanos>& times, int64_t budget)
      : times_(times), over_(live), size_(static_cast<uint32_t>(live.size())) {
    for (int64_t& over : over_) over -= budget;
  }
  double Relief(uint32_t after, uint32_t before, int64_t bytes) const {
    double relief = 0;
    for (uint32_t k = after + 1; k < before; ++k) {
      const int64_t over = over_[k % size_];
      if (over > 0)
        relief += static_cast<double>(std::min(over, bytes)) * static_cast<double>(times_[k % size_]);
    }
    return relief;
  }
  void Remove(uint32_t after, uint32_t before, int64_t bytes) {
    for (uint32_t k = after + 1; k < before; ++k) over_[k % size_] -= bytes;
  }

 private:
  const std::vector<Nanos>& times_;
  std::vector<int64_t> over_;
  const uint32_t size_;
};

}  // namespace

std::vector<PlannedEviction> ChooseByBenefit(const Workload& workload, const Lifetimes& lifetimes,
                                             const std::vector<Nanos>& kernel_times,
                                             const ChoiceOptions& options) {
  Excess excess(lifetimes.live_bytes, kernel_times, static_cast<int64_t>(options.budget_bytes));
  const auto bytes_of = [&](uint32_t i) {
    return static_cast<int64_t>(workload.tensors[lifetimes.intervals[i].tensor].bytes);
  };
  const auto benefit = [&](uint32_t i) {
    const IdleInterval& interval = lifetimes.intervals[i];
    return excess.Relief(interval.after, interval.before, bytes_of(i)) / static_cast<double>(bytes_of(i));
  };
  // Benefits only fall, so the head of the queue is the best once its benefit has been computed anew.
  std::priority_queue<std::pair<double, uint32_t>> queue;
  for (uint32_t i = 0; i < lifetimes.intervals.size(); ++i) queue.emplace(benefit(i), i);
  std::vector<PlannedEviction> evictions;
  while (!queue.empty()) {
    const uint32_t i = queue.top().second;
    queue.pop();
    const double now = benefit(i);
    if (now <= 0) continue;
    if (!queue.empty() && now < queue.top().first) {
      queue.emplace(now, i);
      continue;
    }
    const IdleInterval& interval = lifetimes.intervals[i];
    const uint32_t pieces = PiecesOf(workload.tensors[interval.tensor].bytes, options.piece_bytes);
    evictions.push_back({i, 0, pieces, interval.after + 1, PlanTier::kHost});
    excess.Remove(interval.after, interval.before, bytes_of(i));
  }
  return evictions;
}

}  // namespace spillway::policy
