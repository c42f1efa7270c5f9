// Execute simulates a machine that carries out a plan, event by event: kernels one after another, one
// transfer at a time per copy queue (host and drives, in and out), the plan's triggers, and evictions in need
// where the plan does not suffice. `spillway simulate` and PlanSearch's trials use it. Decisions depend on
// copy queues and headroom, not on the clock, so that a runtime can follow the same rules. Pure; any thread.

#ifndef SPILLWAY_POLICY_SIMULATOR_SIMULATOR_H_
#define SPILLWAY_POLICY_SIMULATOR_SIMULATOR_H_

#include "absl/status/statusor.h"
#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/transfer_plan.h"
#include "policy/model/workload.h"
#include "policy/simulator/execution.h"

namespace spillway::policy {

// Returns ResourceExhausted, with the kernel and the bytes, when a kernel's own tensors exceed the GPU's
// memory.
absl::StatusOr<Execution> Execute(const Workload& workload, const Lifetimes& lifetimes,
                                  const Machine& machine, const TransferPlan& plan,
                                  const ExecutionOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_SIMULATOR_H_
