// QuickBound: times of a steady iteration that no plan on a machine can beat, from one walk over the
// workload. The search for plans ends when it comes near the greatest of them; reports give percentages of
// it. Pure; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_BOUND_QUICK_BOUND_H_
#define SPILLWAY_POLICY_BOUND_QUICK_BOUND_H_

#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/workload.h"

namespace spillway::policy {

struct QuickBound {
  Nanos compute = 0;  // the sum of the kernels
  Nanos load = 0;     // the excess over the GPU at the peak comes back over PCIe
  // The bytes that have to leave before a kernel and to return after it, over PCIe, for the worst kernel.
  Nanos phase = 0;
  Nanos ssd_phase = 0;  // like `phase`, for the excess over GPU and host together, over the SSD
  // For an SSD whose reads and writes share one limit: the excess over GPU and host together is written and
  // read there once an iteration. 0 otherwise.
  Nanos ssd_shared = 0;
  // For PCIe whose directions slow each other down: the excess over the GPU leaves and returns once an
  // iteration. 0 otherwise.
  Nanos pcie_shared = 0;
  Nanos window = 0;    // stretches that read or make more than fits (window_bound)
  Nanos Best() const;  // the greatest: the tightest
};

// `lifetimes` are those of all tensors (least_bytes 0).
QuickBound FindQuickBound(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_BOUND_QUICK_BOUND_H_
