#include "policy/bound/quick_bound.h"

#include <algorithm>
#include <numeric>

#include "policy/bound/window_bound.h"

namespace spillway::policy {
namespace {

Nanos MoveTime(int64_t bytes, double rate) {
  return bytes <= 0 ? 0 : static_cast<Nanos>(static_cast<double>(bytes) / rate * kNanosPerSecond);
}

// Live bytes that a kernel does not name and that need not move for it.
struct Exempt {
  std::vector<int64_t> unwritten;  // not written since the iteration began: they need not have left during it
  std::vector<int64_t> finished;   // not used again in the iteration: they need not return during it
  // Bytes whose next use, in this iteration or the next, overwrites them unread: they never need to return.
  std::vector<int64_t> overwritten, overwritten_next;
  std::vector<int64_t> constant;  // not written by any kernel: one copy elsewhere is good forever
};

// Adds a change over [begin, end), to be summed up later.
void AddOver(std::vector<int64_t>* change, int64_t bytes, uint32_t begin, uint32_t end) {
  if (begin >= end) return;
  (*change)[begin] += bytes;
  (*change)[end] -= bytes;
}

// A part of the iteration during which a tensor lives, with its uses there. A tensor that lives over the
// iteration's end has two.
struct Stretch {
  uint32_t start, stop;  // [start, stop)
  bool from_before;      // it lives at the iteration's start, with content
  bool goes_on;          // it lives on in the next iteration
  std::vector<uint32_t> uses;
};

std::vector<Stretch> StretchesOf(const Workload& workload, uint32_t tensor,
                                 const std::vector<uint32_t>& uses) {
  const uint32_t size = static_cast<uint32_t>(workload.kernels.size());
  if (workload.tensors[tensor].persistent) return {{0, size, true, true, uses}};
  const std::optional<TensorLife>& life = workload.tensors[tensor].life;
  if (!life) return {{uses.front(), uses.back() + 1, false, false, uses}};
  if (!life->wraps()) return {{life->first, life->last + 1, false, false, uses}};
  const auto first = std::lower_bound(uses.begin(), uses.end(), life->first);
  return {{0, life->last + 1, true, false, {uses.begin(), first}},
          {life->first, size, false, true, {first, uses.end()}}};
}

void AddOverwritten(const Workload& workload, const Stretch& stretch, uint32_t tensor, Exempt* exempt) {
  const int64_t bytes = static_cast<int64_t>(workload.tensors[tensor].bytes);
  for (size_t u = 0; u < stretch.uses.size(); ++u) {
    const uint32_t idle_from = u > 0 ? stretch.uses[u - 1] + 1 : stretch.start;
    if (!Names(workload.kernels[stretch.uses[u]].inputs, tensor))
      AddOver(&exempt->overwritten, bytes, idle_from, stretch.uses[u]);
  }
  // A tensor that is not used again before it is freed need not return either.
  if (!stretch.goes_on)
    AddOver(&exempt->overwritten_next, bytes, stretch.uses.empty() ? stretch.start : stretch.uses.back() + 1,
            stretch.stop);
}

void AddExempt(const Workload& workload, const Stretch& stretch, uint32_t tensor, Exempt* exempt) {
  const int64_t bytes = static_cast<int64_t>(workload.tensors[tensor].bytes);
  const auto writer = std::find_if(stretch.uses.begin(), stretch.uses.end(),
                                   [&](uint32_t k) { return Names(workload.kernels[k].outputs, tensor); });
  // A tensor without content at the start need not have left before its first use, written or not.
  const uint32_t unused_until =
      stretch.from_before || stretch.uses.empty() ? stretch.start : stretch.uses.front();
  const uint32_t clean_until = std::max(unused_until, writer == stretch.uses.end() ? stretch.stop : *writer);
  AddOver(&exempt->unwritten, bytes, stretch.start, clean_until);
  AddOver(&exempt->finished, bytes, stretch.uses.empty() ? stretch.start : stretch.uses.back() + 1,
          stretch.stop);
  for (uint32_t k : stretch.uses) {
    if (k < clean_until) AddOver(&exempt->unwritten, -bytes, k, k + 1);
  }
  // Content of one iteration that no kernel makes exists from its first use on, and has to be written out
  // like any other.
  const WorkloadTensor& it = workload.tensors[tensor];
  const bool never_made = (it.persistent || it.life) && writer == stretch.uses.end();
  AddOver(&exempt->constant, bytes, stretch.start, never_made ? stretch.stop : unused_until);
  AddOverwritten(workload, stretch, tensor, exempt);
}

// Returns whether a tensor lives over the iteration's end and is overwritten or freed after it before it is
// read.
bool DiesOverTheEnd(const Workload& workload, const std::vector<Stretch>& stretches, uint32_t tensor) {
  const Stretch& early = stretches.front();
  if (!early.from_before) return false;
  return early.uses.empty() || !Names(workload.kernels[early.uses.front()].inputs, tensor);
}

Exempt FindExempt(const Workload& workload, const Lifetimes& lifetimes) {
  const uint32_t size = static_cast<uint32_t>(workload.kernels.size());
  const std::vector<int64_t> none(size + 1, 0);
  Exempt exempt{none, none, none, none, none};
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    const std::vector<uint32_t>& uses = lifetimes.uses[t];
    if (uses.empty()) continue;
    const std::vector<Stretch> stretches = StretchesOf(workload, t, uses);
    for (const Stretch& stretch : stretches) AddExempt(workload, stretch, t, &exempt);
    if (!DiesOverTheEnd(workload, stretches, t)) continue;
    const Stretch& late = stretches.back();
    AddOver(&exempt.overwritten_next, static_cast<int64_t>(workload.tensors[t].bytes),
            late.uses.empty() ? late.start : late.uses.back() + 1, size);
  }
  for (auto* list :
       {&exempt.unwritten, &exempt.finished, &exempt.overwritten, &exempt.overwritten_next, &exempt.constant})
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
    const Nanos leave = MoveTime(excess - exempt.unwritten[k], out);
    const Nanos back = MoveTime(excess - exempt.finished[k] - exempt.overwritten[k], in);
    worst = std::max(worst, std::max(before, leave) + own + std::max(total - before - own, back));
    before += own;
  }
  return worst;
}

// The excess over `capacity` moves both ways once an iteration, under limits that the two ways share.
Nanos SharedBound(const Lifetimes& lifetimes, const Exempt& exempt, int64_t capacity,
                  const std::vector<SharedLimit>& limits) {
  Nanos worst = 0;
  for (size_t k = 0; k < lifetimes.live_bytes.size(); ++k) {
    const int64_t excess = lifetimes.live_bytes[k] - capacity;
    for (const SharedLimit& limit : limits) {
      const Nanos written = MoveTime(excess - exempt.constant[k], 1 / limit.per_byte_written);
      const Nanos read =
          MoveTime(excess - exempt.overwritten[k] - exempt.overwritten_next[k], 1 / limit.per_byte_read);
      worst = std::max(worst, written + read);
    }
  }
  return worst;
}

// Returns PCIe, and the link behind GPU and host together.
std::vector<WindowLink> LinksOf(const Machine& machine) {
  WindowLink pcie{machine.gpu_bytes, LinkLimits(machine)};
  pcie.limits.push_back({1 / machine.pcie_in, 0});
  pcie.limits.push_back({0, 1 / machine.pcie_out});
  WindowLink ssd{machine.gpu_bytes + machine.host_bytes, {}};
  if (machine.ssd_shared) ssd.limits = SharedLimits(machine);
  ssd.limits.push_back({1 / machine.ssd_read, 0});
  ssd.limits.push_back({0, 1 / machine.ssd_write});
  return {pcie, ssd};
}

}  // namespace

Nanos QuickBound::Best() const {
  return std::max({compute, load, phase, ssd_phase, ssd_shared, pcie_shared, window});
}

QuickBound FindQuickBound(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine) {
  const int64_t gpu = static_cast<int64_t>(machine.gpu_bytes);
  const Exempt exempt = FindExempt(workload, lifetimes);
  QuickBound bound;
  bound.compute = workload.IdealTime();
  for (size_t k = 0; k < workload.kernels.size(); ++k) {
    bound.load = std::max(bound.load, MoveTime(lifetimes.live_bytes[k] - gpu - exempt.overwritten[k] -
                                                   exempt.overwritten_next[k],
                                               machine.pcie_in));
  }
  bound.phase = PhaseBound(workload, lifetimes, exempt, gpu, machine.pcie_out, machine.pcie_in);
  const int64_t inner = gpu + static_cast<int64_t>(machine.host_bytes);
  bound.ssd_phase = PhaseBound(workload, lifetimes, exempt, inner, machine.ssd_write, machine.ssd_read);
  bound.pcie_shared = SharedBound(lifetimes, exempt, gpu, LinkLimits(machine));
  if (machine.ssd_shared) bound.ssd_shared = SharedBound(lifetimes, exempt, inner, SharedLimits(machine));
  bound.window = FindWindowBound(workload, lifetimes, LinksOf(machine));
  return bound;
}

}  // namespace spillway::policy
