// Lifetimes: when each tensor of a workload is live, when it lies idle, and which content (version) it has
// then. Planners, bounds and the simulator read them. Positions are kernels of one iteration; those of the
// next iteration count on from the number of kernels. Data only; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_MODEL_LIFETIMES_H_
#define SPILLWAY_POLICY_MODEL_LIFETIMES_H_

#include <cstdint>
#include <vector>

#include "policy/model/workload.h"

namespace spillway::policy {

// An interval between two uses, with at least one kernel in between, in which the tensor may be off the GPU.
// A persistent tensor's last interval goes over the iteration's end. A tensor that lives on after its last
// use has one from there to its free.
struct IdleInterval {
  uint32_t tensor = 0;
  uint32_t after = 0;  // kernel of the last use
  // Kernel of the next use, or before which it is freed; after + 2 at least; may lie in the next iteration.
  uint32_t before = 0;
  // Kernel whose end made the content; negative: in the iteration before. If no kernel made the content, the
  // first use.
  int32_t written = 0;
  uint32_t version = 0;      // intervals of one version of the content share it
  bool returns = true;       // false: the next use overwrites the tensor without reading it, or there is none
  bool never_dirty = false;  // a persistent tensor that no kernel writes: one copy elsewhere is good forever
};

struct Lifetimes {
  std::vector<std::vector<uint32_t>> uses;  // kernels that name each tensor, ascending
  std::vector<int64_t> live_bytes;          // at each kernel, its workspace included
  std::vector<IdleInterval> intervals;      // of tensors of `least_bytes` and more; by tensor, then `after`
  uint32_t versions = 0;
  static constexpr uint32_t kNoEnd = ~uint32_t{0};
  // The kernel at whose end each tensor is freed; kNoEnd: persistent, or never named.
  std::vector<uint32_t> last_live;
  std::vector<bool> live_at_start;  // persistent, or living over the iteration's end

  int64_t PeakLive() const;
};

// Finds the lifetimes. Tensors that no kernel names are left out everywhere; those of fewer than
// `least_bytes` have no intervals. Time and memory: linear in the uses.
Lifetimes FindLifetimes(const Workload& workload, Bytes least_bytes = 0);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_LIFETIMES_H_
