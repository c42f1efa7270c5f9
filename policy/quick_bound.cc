#include "policy/quick_bound.h"

#include <algorithm>
#include <numeric>

namespace spillway::policy {
namespace {

constexpr double kNanosPerSecond = 1e9;

Nanos TimeFor(int64_t bytes, double rate) {
  return bytes <= 0 ? 0 : static_cast<Nanos>(static_cast<double>(bytes) / rate * kNanosPerSecond);
}

// Live bytes that a kernel does not name and that need not move on its account.
struct Exempt {
  std::vector<int64_t> unwritten;  // not written since the iteration began: they need not have left during it
  std::vector<int64_t> finished;   // not used again in it: they need not return during it
};

Exempt FindExempt(const Workload& workload, const Lifetimes& lifetimes) {
  const uint32_t size = static_cast<uint32_t>(workload.kernels.size());
  Exempt exempt{std::vector<int64_t>(size + 1, 0), std::vector<int64_t>(size + 1, 0)};
  const auto add = [](std::vector<int64_t>* change, int64_t bytes, uint32_t begin, uint32_t end) {
    if (begin >= end) return;
    (*change)[begin] += bytes;
    (*change)[end] -= bytes;
  };
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    const std::vector<uint32_t>& uses = lifetimes.uses[t];
    if (uses.empty()) continue;
    const bool persistent = workload.tensors[t].persistent;
    const int64_t bytes = static_cast<int64_t>(workload.tensors[t].bytes);
    const uint32_t start = persistent ? 0 : uses.front();
    const uint32_t stop = persistent ? size : uses.back() + 1;
    const auto writer = std::find_if(uses.begin(), uses.end(), [&](uint32_t k) {
      const auto& outputs = workload.kernels[k].outputs;
      return std::binary_search(outputs.begin(), outputs.end(), t);
    });
    const uint32_t clean_until = std::max(start, writer == uses.end() ? stop : *writer);
    add(&exempt.unwritten, bytes, start, clean_until);
    add(&exempt.finished, bytes, uses.back() + 1, stop);
    for (uint32_t k : uses) {
      if (k < clean_until) add(&exempt.unwritten, -bytes, k, k + 1);
    }
  }
  std::partial_sum(exempt.unwritten.begin(), exempt.unwritten.end(), exempt.unwritten.begin());
  std::partial_sum(exempt.finished.begin(), exempt.finished.end(), exempt.finished.begin());
  return exempt;
}

Nanos PhaseBound(const Workload& workload, const Lifetimes& lifetimes, const Exempt& exempt, int64_t capacity,
                 double out, double in) {
  const Nanos total = workload.IdealTime();
  Nanos worst = 0, before = 0;
  for (size_t k = 0; k < workload.kernels.size(); ++k) {
    const Nanos own = workload.kernels[k].duration;
    const int64_t excess = lifetimes.live_bytes[k] - capacity;
    const Nanos leave = TimeFor(excess - exempt.unwritten[k], out);
    const Nanos back = TimeFor(excess - exempt.finished[k], in);
    worst = std::max(worst, std::max(before, leave) + own + std::max(total - before - own, back));
    before += own;
  }
  return worst;
}

}  // namespace

Nanos QuickBound::Best() const { return std::max({compute, load, phase, ssd_phase}); }

QuickBound FindQuickBound(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine) {
  const int64_t gpu = static_cast<int64_t>(machine.gpu_bytes);
  const Exempt exempt = FindExempt(workload, lifetimes);
  QuickBound bound;
  bound.compute = workload.IdealTime();
  bound.load = TimeFor(lifetimes.PeakLive() - gpu, machine.pcie_in);
  bound.phase = PhaseBound(workload, lifetimes, exempt, gpu, machine.pcie_out, machine.pcie_in);
  bound.ssd_phase = PhaseBound(workload, lifetimes, exempt, gpu + static_cast<int64_t>(machine.host_bytes),
                               machine.ssd_write, machine.ssd_read);
  return bound;
}

}  // namespace spillway::policy
