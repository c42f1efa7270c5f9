// PartState: the places of the parts of all tensors while a plan is executed, and the memory that they take.
// A part is a range of pieces that always moves as one. PartState only keeps the accounts; the simulator
// decides which part moves when. Private to the simulator; nothing fails.

#ifndef SPILLWAY_POLICY_SIMULATOR_PART_STATE_H_
#define SPILLWAY_POLICY_SIMULATOR_PART_STATE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "policy/model/workload.h"
#include "policy/simulator/execution.h"

namespace spillway::policy {

struct ExecutionPart {
  uint32_t tensor = 0;
  uint32_t first_piece = 0, last_piece = 0;
  Bytes bytes = 0;
  std::array<bool, 3> valid = {};  // by Place
  bool moving_out = false, moving_in = false;
  bool drop_pending = false;  // leaves the GPU when a copy elsewhere is complete
  bool keep_copy = false;     // the copy stays after the way back: a later eviction uses it
  bool returns = true;        // the next use reads it
  bool has_drive = false;
  uint32_t drive = 0;         // of the SSD, for its copies there; chosen for the first one
  bool read_to_come = false;  // its drive has to read it; counted in DriveLoads
  uint64_t away_until = 0;    // next use, counted over iterations, of a part that is away or about to leave
  Nanos read_lead = -1;       // see PlannedEviction; negative: read as early as headroom allows
};

// A copy out that may start. Distances are in kernels.
struct DueWrite {
  uint32_t part = 0;
  PlanTier tier = PlanTier::kHost;
  uint32_t needed = 0;   // kernels until the last use before the first eviction: the order of the copies
  uint32_t expires = 0;  // kernels until no eviction needs the copy any more
};

// A part that leaves the GPU by the plan.
struct DueDrop {
  uint32_t part = 0;
  uint32_t counted_from = 0;  // kernels until the plan counts it as away
  uint32_t away = 0;          // kernels until the next use
  bool keep_copy = false;
  bool returns = true;
  Nanos read_lead = -1;
};

struct TensorState {
  uint32_t first_part = 0, last_part = 0;
  bool live = false;
  uint32_t parts_on_gpu = 0;  // valid there
  Bytes taken_on_gpu = 0;     // bytes, with those of parts on their way in
  uint32_t moves_out = 0, moves_in = 0;
  uint64_t content = 0;   // counts the kernels that wrote it
  uint64_t last_use = 0;  // counted over iterations, plus 1; 0: not used yet
};

class PartState {
 public:
  // Parts are cut at the pieces `cuts` of each tensor, in any order, and to `move_bytes`.
  PartState(const Workload& workload, Bytes piece_bytes, Bytes move_bytes,
            std::vector<std::vector<uint32_t>> cuts);

  std::vector<ExecutionPart> parts;
  std::vector<TensorState> tensors;
  std::array<Bytes, 3> used = {};  // by Place
  std::array<Bytes, 3> peak = {};

  bool AllOnGpu(uint32_t tensor) const {
    const TensorState& state = tensors[tensor];
    return state.parts_on_gpu == state.last_part - state.first_part;
  }
  static bool ElsewhereValid(const ExecutionPart& part) { return part.valid[1] || part.valid[2]; }
  bool InputsReady(const WorkloadKernel& kernel) const;
  // The bytes of GPU memory that a kernel's start takes for its workspace and new tensors; the bytes of its
  // live inputs that have no memory there.
  Bytes SpaceFor(const WorkloadKernel& kernel) const;
  Bytes MissingFor(const WorkloadKernel& kernel) const;

  void Take(Place place, Bytes bytes);
  void SetValid(uint32_t part, Place place);  // its memory there is taken already
  void Put(uint32_t part, Place place);       // takes the memory and makes it valid
  void Free(uint32_t part, Place place);  // gives the memory back; nothing happens when it is not valid there
  // Free, for all parts of a tensor.
  void FreeAll(uint32_t tensor, Place place);
  // A kernel's start takes memory on the GPU for all parts of its tensors. Parts without content become valid
  // later.
  Bytes LackOnGpu(uint32_t tensor) const;  // bytes of the tensor for which no memory is taken there
  void TakeAllOnGpu(uint32_t tensor);
  void ValidateAllOnGpu(uint32_t tensor);

 private:
  const Workload& workload_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_PART_STATE_H_
