// BlockMachine: what a machine does with a MigrationPlan: a job of one recorded iteration after the other,
// whose plan PlanCursor carries out, as PlanRunner has it done on a device: ops by completions on the GPU,
// fetches by headroom, what is missing on demand, the host ahead of the GPU by as much as the plan lets it.
// Run-time plans are searched and forecast by it. The host link, the disk and memory are MachineBlocks';
// whole blocks move, whatever piece_bytes says. Pure; any thread.

#ifndef SPILLWAY_POLICY_SIMULATOR_BLOCK_MACHINE_H_
#define SPILLWAY_POLICY_SIMULATOR_BLOCK_MACHINE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/plan.h"
#include "policy/model/plan_cursor.h"
#include "policy/simulator/execution.h"
#include "policy/trace/recorded_workload.h"

namespace spillway::policy {

class BlockMachine {
 public:
  // The arguments must outlive it. `lifetimes`: of the workload, with no least size.
  BlockMachine(const RecordedWorkload& recorded, const Lifetimes& lifetimes);

  // Carries the plan out on `machine` from its position 0 on, with everything away that lives then. Null:
  // everything on demand, least recently used first. gpu_bytes are never exceeded; what does not fit the host
  // goes to the disk. Of the options, `iterations` and `record` count; recorded moves are in pieces of
  // SharedLink::kUnitOfWhole, and those of copies that launches took back are left out. ResourceExhausted,
  // with the launch, when the job cannot go on.
  absl::StatusOr<Execution> Run(const Machine& machine, std::shared_ptr<const MigrationPlan> plan,
                                const ExecutionOptions& options) const;

 private:
  friend class BlockMachineJob;

  const RecordedWorkload& recorded_;
  const Lifetimes& lifetimes_;
  size_t most_blocks_ = 0;                    // more than any block's number; these lie close together
  std::vector<std::vector<uint32_t>> named_;  // tensors of each launch, ascending
  std::vector<std::vector<uint32_t>> freed_;  // tensors that the host frees before it goes past the launch
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_BLOCK_MACHINE_H_
