// TransferPlan: which parts of which tensors are away from the GPU in which idle intervals, over one
// iteration that repeats, and to which tier they go. PlanSearch makes it, the simulator executes it,
// RuntimePlanner turns it into a MigrationPlan. Data only.
//
// The plan has no times: its triggers follow from the intervals. A copy out may start when the content has
// been written. The GPU copy is dropped when the copy is complete and the last use is over. The way back
// starts as early as the headroom of all kernels up to the next use allows.

#ifndef SPILLWAY_POLICY_MODEL_TRANSFER_PLAN_H_
#define SPILLWAY_POLICY_MODEL_TRANSFER_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policy/model/units.h"

namespace spillway::policy {

// A range of pieces of one tensor that is away in one idle interval.
struct PlannedEviction {
  uint32_t interval = 0;  // index into Lifetimes::intervals
  uint32_t first_piece = 0;
  uint32_t last_piece = 0;  // exclusive
  uint32_t from = 0;        // kernel from which on the plan counts them as away; after + 1 .. before - 1
  PlanTier tier = PlanTier::kHost;
  // The time before the start of its next use at which its read from the host has to begin, so that it and
  // all later reads are in time (FindReadLeads in planner/tier_choice.h). Used when the plan has a host_lead.
  Nanos read_lead = 0;
};

struct TransferPlan {
  std::vector<PlannedEviction> evictions;
  std::vector<Nanos> kernel_times;  // what the plan takes kernels to last, waits included
  bool early_writes = true;  // false: copies out start only after the last use, as most planners have it
  // Reads from the host start at most this long before their read_lead; negative: as early as headroom
  // allows.
  Nanos host_lead = -1;
  // While what a drive reads next finds no headroom on the GPU, it comes to host memory, where there is some.
  bool promotes = false;
};

// Pieces of a tensor, and bytes of a range of them. `piece_bytes` 0: a tensor is one piece.
inline uint32_t PiecesOf(Bytes bytes, Bytes piece_bytes) {
  return piece_bytes == 0 ? 1 : static_cast<uint32_t>((bytes + piece_bytes - 1) / piece_bytes);
}
inline Bytes BytesOfPieces(Bytes bytes, Bytes piece_bytes, uint32_t first, uint32_t last) {
  if (piece_bytes == 0) return first < last ? bytes : 0;
  return std::min(bytes, last * piece_bytes) - std::min(bytes, first * piece_bytes);
}

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_TRANSFER_PLAN_H_
