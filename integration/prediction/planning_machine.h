// PlanningMachine: the machine that plans are made for while the job runs, as far as it is known by now:
// memory, rates, and the memory that plans cannot use. Blocks with a long-term pin that no launch of the
// iteration names stay on the GPU whatever a plan says, so their memory does not count as the machine's.
// Plans move blocks in whole chunks, but a move copies only the bytes that the job has asked for. The rates
// are those at which whole chunks move. The predictor calls it on its thread; no call fails.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_PLANNING_MACHINE_H_
#define SPILLWAY_INTEGRATION_PREDICTION_PLANNING_MACHINE_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "allocator/residency/residency.h"
#include "policy/planner/runtime_planner.h"
#include "policy/trace/sequence_tracker.h"
#include "policy/trace/trace.h"

namespace spillway::integration {

// Rates that count until the machine's own have been measured, in bytes a second; 0: not known.
struct KnownRates {
  double host_in = 0, host_out = 0;            // each direction of the link alone
  double host_in_both = 0, host_out_both = 0;  // while both run
  double disk_in = 0, disk_out = 0;
};

class PlanningMachine {
 public:
  // `host_bytes`: as in PredictorOptions.
  PlanningMachine(std::function<uint64_t()> host_bytes, bool has_disk, const KnownRates& known = {})
      : host_bytes_(std::move(host_bytes)), has_disk_(has_disk), known_(known) {}

  // Returns the machine for `sequence`, which is number `id`. Walks the sequence only if it or the pinned
  // bytes have changed. `residency` may be null. `sizes`, `copied`: of each block in whole chunks, and what a
  // move of it copies by the latest tensor that it was given to.
  policy::RuntimeMachine Now(const allocator::Residency* residency, policy::SequenceId id,
                             const policy::Trace& sequence, const policy::BlockSizes& sizes,
                             const policy::BlockSizes& copied);

 private:
  // Returns the bytes of pinned blocks that no launch of the sequence names.
  uint64_t PinnedBeside(const allocator::Residency& residency, uint64_t pinned_bytes, policy::SequenceId id,
                        const policy::Trace& sequence);
  // Returns the bytes of the sequence's blocks over those that moves of them copy: 1 or more.
  double ChunksToCopied(policy::SequenceId id, const policy::Trace& sequence, const policy::BlockSizes& sizes,
                        const policy::BlockSizes& copied);

  const std::function<uint64_t()> host_bytes_;
  const bool has_disk_;
  const KnownRates known_;
  // The inputs and results of the last walks.
  policy::SequenceId sized_ = policy::kNoSequence;  // of ChunksToCopied
  double chunks_to_copied_ = 1;
  uint64_t pinned_bytes_ = 0;
  policy::SequenceId searched_ = policy::kNoSequence;  // of PinnedBeside, with pinned_bytes_
  uint64_t beside_bytes_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_PLANNING_MACHINE_H_
