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
  // Those whose next use, in this iteration or the next, overwrites them unread: they need never return.
  std::vector<int64_t> overwritten, overwritten_next;
};

// A change over [begin, end), to be summed up later.
void AddOver(std::vector<int64_t>* change, int64_t bytes, uint32_t begin, uint32_t end) {
  if (begin >= end) return;
  (*change)[begin] += bytes;
  (*change)[end] -= bytes;
}

void AddOverwritten(const Workload& workload, const std::vector<uint32_t>& uses, uint32_t tensor,
                    Exempt* exempt) {
  const uint32_t size = static_cast<uint32_t>(workload.kernels.size());
  const int64_t bytes = static_cast<int64_t>(workload.tensors[tensor].bytes);
  const bool persistent = workload.tensors[tensor].persistent;
  const auto reads = [&](uint32_t k) {
    const auto& inputs = workload.kernels[k].inputs;
    return std::binary_search(inputs.begin(), inputs.end(), tensor);
  };
  for (size_t u = 0; u < uses.size(); ++u) {
    const uint32_t idle_from = u > 0 ? uses[u - 1] + 1 : persistent ? 0 : uses[u];
    if (!reads(uses[u])) AddOver(&exempt->overwritten, bytes, idle_from, uses[u]);
  }
  if (persistent && !reads(uses.front())) AddOver(&exempt->overwritten_next, bytes, uses.back() + 1, size);
}

Exempt FindExempt(const Workload& workload, const Lifetimes& lifetimes) {
  const uint32_t size = static_cast<uint32_t>(workload.kernels.size());
  const std::vector<int64_t> none(size + 1, 0);
  Exempt exempt{none, none, none, none};
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
    AddOver(&exempt.unwritten, bytes, start, clean_until);
    AddOver(&exempt.finished, bytes, uses.back() + 1, stop);
    for (uint32_t k : uses) {
      if (k < clean_until) AddOver(&exempt.unwritten, -bytes, k, k + 1);
    }
    AddOverwritten(workload, uses, t, &exempt);
  }
  for (auto* list : {&exempt.unwritten, &exempt.finished, &exempt.overwritten, &exempt.overwritten_next})
    std::partial_sum(list->begin(), list->end(), list->begin());
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
    const Nanos back = TimeFor(excess - exempt.finished[k] - exempt.overwritten[k], in);
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
  for (size_t k = 0; k < workload.kernels.size(); ++k) {
    bound.load = std::max(bound.load, TimeFor(lifetimes.live_bytes[k] - gpu - exempt.overwritten[k] -
                                                  exempt.overwritten_next[k],
                                              machine.pcie_in));
  }
  bound.phase = PhaseBound(workload, lifetimes, exempt, gpu, machine.pcie_out, machine.pcie_in);
  bound.ssd_phase = PhaseBound(workload, lifetimes, exempt, gpu + static_cast<int64_t>(machine.host_bytes),
                               machine.ssd_write, machine.ssd_read);
  return bound;
}

}  // namespace spillway::policy
