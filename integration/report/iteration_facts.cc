#include "integration/report/iteration_facts.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "policy/model/lifetimes.h"

namespace spillway::integration {
namespace {

using policy::Workload;

// The first of all uses of a persistent tensor, counted from `first` on.
struct FirstUse {
  uint32_t position = 0;
  bool written = false;  // it is changed in place
};

bool IsNamedBackward(std::string_view name) {
  return name.find("ackward") != std::string_view::npos || name.find("_grad") != std::string_view::npos;
}

// The kernels in the order that begins with `first`.
class Turned {
 public:
  Turned(const Workload& iteration, uint32_t first) : iteration_(iteration), first_(first) {}
  uint32_t size() const { return static_cast<uint32_t>(iteration_.kernels.size()); }
  uint32_t IndexOf(uint32_t position) const { return (first_ + position) % size(); }
  uint32_t PositionOf(uint32_t kernel) const { return (kernel + size() - first_) % size(); }
  const policy::WorkloadKernel& at(uint32_t position) const { return iteration_.kernels[IndexOf(position)]; }

 private:
  const Workload& iteration_;
  const uint32_t first_;
};

std::vector<FirstUse> FirstUses(const Workload& iteration, const policy::Lifetimes& lifetimes,
                                const Turned& turned) {
  std::vector<FirstUse> uses;
  for (uint32_t t = 0; t < iteration.tensors.size(); ++t) {
    if (!iteration.tensors[t].persistent || lifetimes.uses[t].empty()) continue;
    FirstUse use{turned.size(), false};
    for (const uint32_t kernel : lifetimes.uses[t]) {
      use.position = std::min(use.position, turned.PositionOf(kernel));
      use.written |= policy::Names(iteration.kernels[kernel].outputs, t);
    }
    uses.push_back(use);
  }
  return uses;
}

// Returns the position where the most bytes are live, at `from` or later and before `to`.
uint32_t PeakBetween(const policy::Lifetimes& lifetimes, const Turned& turned, uint32_t from, uint32_t to) {
  uint32_t peak = from;
  for (uint32_t position = from; position < to; ++position) {
    if (lifetimes.live_bytes[turned.IndexOf(position)] > lifetimes.live_bytes[turned.IndexOf(peak)])
      peak = position;
  }
  return peak;
}

}  // namespace

std::vector<ReportedKernel> CostsOfKernels(const Workload& iteration) {
  std::map<std::string, ReportedKernel> costs;
  for (const policy::WorkloadKernel& kernel : iteration.kernels) {
    if (kernel.name.empty()) continue;
    ReportedKernel& cost = costs[kernel.name];
    cost.name = kernel.name;
    cost.launches = cost.launches.value_or(0) + 1;
    cost.seconds = cost.seconds.value_or(0) + static_cast<double>(kernel.duration) / 1e9;
  }
  std::vector<ReportedKernel> list;
  for (auto& [name, cost] : costs) list.push_back(std::move(cost));
  return list;
}

std::vector<IterationFacts::Phase> FindPhases(const Workload& iteration, std::optional<uint32_t> first) {
  const double ideal = static_cast<double>(iteration.IdealTime());
  if (!first || *first >= iteration.kernels.size() || ideal <= 0) return {};
  const policy::Lifetimes lifetimes = policy::FindLifetimes(iteration);
  const Turned turned(iteration, *first);
  const std::vector<FirstUse> uses = FirstUses(iteration, lifetimes, turned);
  // The optimizer changes its state after the whole backward pass. Weights are used before.
  uint32_t earliest = turned.size() / 2;
  for (uint32_t position = earliest; position < turned.size(); ++position) {
    if (IsNamedBackward(turned.at(position).name)) earliest = position;
  }
  uint32_t optimizer = turned.size();
  for (const FirstUse& use : uses) {
    if (use.written && use.position > earliest) optimizer = std::min(optimizer, use.position);
  }
  uint32_t weights = 0;
  for (const FirstUse& use : uses) {
    if (use.position < optimizer) weights = std::max(weights, use.position);
  }
  uint32_t backward = weights;
  while (backward < optimizer && !IsNamedBackward(turned.at(backward).name)) ++backward;
  const bool guessed = backward == optimizer;
  if (guessed) backward = PeakBetween(lifetimes, turned, weights, optimizer);
  if (backward == 0 || backward >= optimizer) return {};

  std::vector<IterationFacts::Phase> phases = {{"forward", 0, 0}, {"backward", 0, 0}, {"optimizer", 0, 0}};
  const auto share_before = [&](uint32_t end) {
    double time = 0;
    for (uint32_t position = 0; position < end; ++position)
      time += static_cast<double>(turned.at(position).duration);
    return time / ideal;
  };
  phases[0].to = phases[1].from = share_before(backward);
  phases[0].guessed = phases[1].guessed = guessed;
  phases[1].to = phases[2].from = share_before(optimizer);
  phases[2].to = 1;
  if (optimizer == turned.size()) phases.pop_back();
  return phases;
}

}  // namespace spillway::integration
