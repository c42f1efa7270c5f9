#include "policy/model/lifetimes.h"

#include <algorithm>

namespace spillway::policy {
namespace {

// The intervals of one tensor. Its uses are taken in the order of its life, which may go over the iteration's
// end; kernels count on there.
class TensorIntervals {
 public:
  TensorIntervals(const Workload& workload, uint32_t tensor, const std::vector<uint32_t>& uses)
      : workload_(workload),
        tensor_(tensor),
        persistent_(workload.tensors[tensor].persistent),
        kernels_(static_cast<uint32_t>(workload.kernels.size())),
        uses_(uses),
        end_(uses.back() + 1) {
    const std::optional<TensorLife>& life = workload.tensors[tensor].life;
    if (!life) return;
    end_ = life->last + 1 + (life->wraps() ? kernels_ : 0);
    if (!life->wraps()) return;
    const auto first = std::lower_bound(uses.begin(), uses.end(), life->first) - uses.begin();
    for (auto use = uses_.begin(); use != uses_.begin() + first; ++use) *use += kernels_;
    std::rotate(uses_.begin(), uses_.begin() + first, uses_.end());
  }

  void AppendTo(Lifetimes* lifetimes) {
    int32_t last_writer = -1;
    for (uint32_t k : uses_) {
      if (Writes(k)) last_writer = static_cast<int32_t>(k);
    }
    // A version is one content of the tensor: a new one begins with each kernel that writes it. The content
    // at the iteration's start is that which the last writer left in the iteration before, if the tensor is
    // persistent. Both count as one version, since one copy elsewhere is good for intervals of either.
    uint32_t version = lifetimes->versions++;
    const uint32_t first_version = version;
    int32_t written = static_cast<int32_t>(uses_.front());
    if (persistent_ && last_writer >= 0) written = last_writer - static_cast<int32_t>(kernels_);
    for (size_t u = 0; u < uses_.size(); ++u) {
      const uint32_t k = uses_[u];
      if (Writes(k)) {
        written = static_cast<int32_t>(k);
        version = persistent_ && written == last_writer ? first_version : lifetimes->versions++;
      }
      const bool last = u + 1 == uses_.size();
      IdleInterval interval{tensor_, k, last ? end_ : uses_[u + 1], written, version};
      if (last && persistent_) interval.before = uses_.front() + kernels_;
      interval.returns = (!last || persistent_) && Reads(interval.before);
      interval.never_dirty = persistent_ && last_writer < 0;
      if (interval.before < interval.after + 2) continue;
      if (interval.after >= kernels_) {  // counted from its last use's own iteration on
        interval.after -= kernels_;
        interval.before -= kernels_;
        interval.written -= static_cast<int32_t>(kernels_);
      }
      lifetimes->intervals.push_back(interval);
    }
  }

 private:
  bool Writes(uint32_t k) const { return Names(workload_.kernels[k % kernels_].outputs, tensor_); }
  bool Reads(uint32_t k) const { return Names(workload_.kernels[k % kernels_].inputs, tensor_); }

  const Workload& workload_;
  const uint32_t tensor_;
  const bool persistent_;
  const uint32_t kernels_;
  std::vector<uint32_t> uses_;
  uint32_t end_;  // the kernel before which it is freed
};

// Returns when a tensor takes memory; none if no kernel names it. A persistent one always does.
std::optional<TensorLife> LifeOf(const Workload& workload, uint32_t tensor,
                                 const std::vector<uint32_t>& uses) {
  if (uses.empty()) return std::nullopt;
  const uint32_t kernels = static_cast<uint32_t>(workload.kernels.size());
  if (workload.tensors[tensor].persistent) return TensorLife{0, kernels - 1};
  if (workload.tensors[tensor].life) return workload.tensors[tensor].life;
  return TensorLife{uses.front(), uses.back()};
}

void FindLives(const Workload& workload, Lifetimes* lifetimes) {
  const size_t kernels = workload.kernels.size();
  std::vector<int64_t> change(kernels + 1, 0);
  lifetimes->last_live.assign(workload.tensors.size(), Lifetimes::kNoEnd);
  lifetimes->live_at_start.assign(workload.tensors.size(), false);
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    const bool persistent = workload.tensors[t].persistent;
    if (persistent) lifetimes->live_at_start[t] = true;
    const std::optional<TensorLife> life = LifeOf(workload, t, lifetimes->uses[t]);
    if (!life) continue;
    const int64_t bytes = static_cast<int64_t>(workload.tensors[t].bytes);
    change[life->first] += bytes;
    change[life->last + 1] -= bytes;
    if (life->wraps()) {
      change[0] += bytes;
      lifetimes->live_at_start[t] = true;
    }
    if (!persistent) lifetimes->last_live[t] = life->last;
  }
  int64_t now = 0;
  for (size_t k = 0; k < kernels; ++k) {
    now += change[k];
    lifetimes->live_bytes.push_back(now + static_cast<int64_t>(workload.kernels[k].workspace_bytes));
  }
}

}  // namespace

int64_t Lifetimes::PeakLive() const {
  return live_bytes.empty() ? 0 : *std::max_element(live_bytes.begin(), live_bytes.end());
}

Lifetimes FindLifetimes(const Workload& workload, Bytes least_bytes) {
  Lifetimes lifetimes;
  lifetimes.uses.resize(workload.tensors.size());
  for (uint32_t k = 0; k < workload.kernels.size(); ++k) {
    for (const auto* ids : {&workload.kernels[k].inputs, &workload.kernels[k].outputs}) {
      for (uint32_t t : *ids) {
        if (lifetimes.uses[t].empty() || lifetimes.uses[t].back() != k) lifetimes.uses[t].push_back(k);
      }
    }
  }
  FindLives(workload, &lifetimes);
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    if (lifetimes.uses[t].empty() || workload.tensors[t].bytes < least_bytes) continue;
    TensorIntervals(workload, t, lifetimes.uses[t]).AppendTo(&lifetimes);
  }
  return lifetimes;
}

}  // namespace spillway::policy
