// ExecutionState: where the parts of all tensors are while a plan is executed, and what memory that takes. A part is a
// range of pieces that always moves as one. Owns the accounting; what moves when is decided in execution.cc.

#ifndef SPILLWAY_POLICY_SIMULATOR_PART_STATE_H_
#define SPILLWAY_POLICY_SIMULATOR_PART_STATE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "policy/simulator/execution.h"

namespace spillway::policy {

struct ExecutionPart {
  uint32_t tensor = 0;
  uint32_t first_piece = 0, last_piece = 0;
  Bytes bytes = 0;
  std::array<bool, 3> valid = {};  // by Place
  bool moving_out = false, moving_in = false;
  bool drop_pending = false;  // leaves the GPU when a copy elsewhere is there
  bool keep_copy = false;     // the copy outlives the way back: it is used again
  bool returns = true;        // the next use reads it
  PlanTier tier = PlanTier::kHost;
  bool has_drive = false;
  uint32_t drive = 0;         // of the SSD, for its copies there; chosen for the first one
  bool read_to_come = false;  // from the drive; counted there
  uint64_t away_until = 0;    // next use, counted over iterations, of a part that is away or about to leave
  Nanos read_lead = -1;       // see HostReadLeads; negative: read as early as room allows
};

struct TensorState {
  uint32_t first_part = 0, last_part = 0;
  bool live = false;
  uint32_t parts_on_gpu = 0;  // valid there
  Bytes held_on_gpu = 0;      // parts on their way in included
  uint32_t moves_out = 0, moves_in = 0;
  uint64_t content = 0;   // counts the kernels that wrote it
  uint64_t last_use = 0;  // counted over iterations, plus 1; 0: not used yet
};

class ExecutionState {
 public:
  // Parts are cut where absences of the plan begin and end, and to `move_bytes`.
  ExecutionState(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                 const TransferPlan& plan, Bytes move_bytes);

  std::vector<ExecutionPart> parts;
  std::vector<TensorState> tensors;
  std::array<Bytes, 3> used = {};  // by Place
  std::array<Bytes, 3> peak = {};

  bool AllOnGpu(uint32_t tensor) const {
    const TensorState& state = tensors[tensor];
    return state.parts_on_gpu == state.last_part - state.first_part;
  }
  bool ElsewhereValid(const ExecutionPart& part) const { return part.valid[1] || part.valid[2]; }

  void Take(Place place, Bytes bytes);
  // The part becomes valid at a place where its space is taken already / with taking the space / stops being there.
  void SetValid(uint32_t part, Place place);
  void Put(uint32_t part, Place place);
  void Free(uint32_t part, Place place);
  // All parts of a tensor at a place.
  void FreeAll(uint32_t tensor, Place place);
  // All parts take their space on the GPU without content being there (an output), and are valid later.
  Bytes LackOnGpu(uint32_t tensor) const;
  void HoldAllOnGpu(uint32_t tensor);
  void ValidateAllOnGpu(uint32_t tensor);

 private:
  const Workload& workload_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_PART_STATE_H_
