#include "policy/lifetimes.h"

#include <algorithm>

namespace spillway::policy {
namespace {

bool Contains(const std::vector<uint32_t>& ascending, uint32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

// The intervals of one tensor.
class TensorIntervals {
 public:
  TensorIntervals(const Workload& workload, uint32_t tensor, const std::vector<uint32_t>& uses)
      : workload_(workload),
        tensor_(tensor),
        uses_(uses),
        kernels_(static_cast<uint32_t>(workload.kernels.size())) {}

  void AppendTo(Lifetimes* lifetimes) {
    const bool persistent = workload_.tensors[tensor_].persistent;
    int32_t last_writer = -1;
    for (uint32_t k : uses_) {
      if (Writes(k)) last_writer = static_cast<int32_t>(k);
    }
    // Content at the start of the iteration: of a persistent tensor, what the iteration before left.
    uint32_t version = lifetimes->versions++;
    const uint32_t first_version = version;
    int32_t written = static_cast<int32_t>(uses_.front());
    if (persistent && last_writer >= 0) written = last_writer - static_cast<int32_t>(kernels_);
    int32_t writes_seen = -1;
    for (size_t u = 0; u < uses_.size(); ++u) {
      const uint32_t k = uses_[u];
      if (Writes(k)) {
        writes_seen = static_cast<int32_t>(k);
        written = writes_seen;
        version = persistent && writes_seen == last_writer ? first_version : lifetimes->versions++;
      }
      const bool last = u + 1 == uses_.size();
      if (last && !persistent) break;
      const uint32_t next = last ? uses_.front() : uses_[u + 1];
      IdleInterval interval{tensor_, k, last ? next + kernels_ : next, written, version};
      interval.returns = Reads(next);
      interval.never_dirty = persistent && last_writer < 0;
      if (interval.before >= interval.after + 2) lifetimes->intervals.push_back(interval);
    }
  }

 private:
  bool Writes(uint32_t k) const { return Contains(workload_.kernels[k].outputs, tensor_); }
  bool Reads(uint32_t k) const { return Contains(workload_.kernels[k].inputs, tensor_); }

  const Workload& workload_;
  const uint32_t tensor_;
  const std::vector<uint32_t>& uses_;
  const uint32_t kernels_;
};

std::vector<int64_t> LiveBytes(const Workload& workload, const std::vector<std::vector<uint32_t>>& uses) {
  const size_t kernels = workload.kernels.size();
  std::vector<int64_t> change(kernels + 1, 0);
  for (size_t t = 0; t < uses.size(); ++t) {
    if (uses[t].empty()) continue;
    const bool persistent = workload.tensors[t].persistent;
    const int64_t bytes = static_cast<int64_t>(workload.tensors[t].bytes);
    change[persistent ? 0 : uses[t].front()] += bytes;
    change[persistent ? kernels : uses[t].back() + 1] -= bytes;
  }
  std::vector<int64_t> live(kernels);
  int64_t now = 0;
  for (size_t k = 0; k < kernels; ++k) {
    now += change[k];
    live[k] = now + static_cast<int64_t>(workload.kernels[k].workspace_bytes);
  }
  return live;
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
  lifetimes.live_bytes = LiveBytes(workload, lifetimes.uses);
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    if (lifetimes.uses[t].empty() || workload.tensors[t].bytes < least_bytes) continue;
    TensorIntervals(workload, t, lifetimes.uses[t]).AppendTo(&lifetimes);
  }
  return lifetimes;
}

}  // namespace spillway::policy
