// BlockMachine simulates a job under a MigrationPlan: it repeats one recorded iteration, and PlanCursor
// carries the plan out, as it does for PlanRunner on a device. Ops start by completions on the GPU, fetches
// by headroom, and missing blocks come on demand. The host runs ahead of the GPU by as much as the plan
// allows. RuntimePlanner tries and forecasts its plans with it. MachineBlocks has the links, the disk and the
// memory; whole blocks move, so piece_bytes is ignored. Pure; any thread.

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

  // Carries the plan out on `machine` from its position 0 on, with everything away that lives then. Blocks
  // move on demand if the plan is null, and the least recently used leave first. gpu_bytes are never
  // exceeded; blocks that do not fit in host memory go to the disk. Only the options `iterations` and
  // `record` are used. Recorded moves are in pieces of SharedLink::kUnitOfWhole; moves of copies that
  // launches took back are left out. Returns ResourceExhausted, with the launch, when the job cannot go on.
  absl::StatusOr<Execution> Run(const Machine& machine, std::shared_ptr<const MigrationPlan> plan,
                                const ExecutionOptions& options) const;

 private:
  friend class BlockMachineJob;

  const RecordedWorkload& recorded_;
  const Lifetimes& lifetimes_;
  size_t most_blocks_ = 0;                    // more than any block's id; ids lie close together
  std::vector<std::vector<uint32_t>> named_;  // tensors of each launch, ascending
  std::vector<std::vector<uint32_t>> freed_;  // tensors that the host frees before it goes past the launch
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_BLOCK_MACHINE_H_
