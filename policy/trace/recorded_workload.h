// RecordedWorkload: one iteration of a recorded trace as a workload, the form that the planners work on.
// Tensors are the lives of blocks: the trace's allocations and frees say how long a block's memory is taken.
// RuntimePlanner's callers make it. Pure; nothing fails.

#ifndef SPILLWAY_POLICY_TRACE_RECORDED_WORKLOAD_H_
#define SPILLWAY_POLICY_TRACE_RECORDED_WORKLOAD_H_

#include <vector>

#include "policy/model/workload.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/trace.h"
#include "policy/trace/write_facts.h"

namespace spillway::policy {

struct RecordedWorkload {
  Workload workload;               // kernel k is the launch at position k
  std::vector<TraceBlock> blocks;  // of each tensor; a block that is allocated n times is n tensors
  LaunchIndex start = 0;           // the launch at position 0
  uint32_t measured = 0;           // kernels whose durations were measured
};

// The iteration is the `iteration_launches` launches of `trace` from `start` on, taken to repeat for ever.
// A block that is allocated in it and not freed there is freed in the next iteration, at the position where
// this one frees the same block.
// - A block that is neither allocated nor freed in the iteration is persistent. Any other lives from its
//   first use after the allocation, which writes it without reading, to the launch before which it is freed.
// - Further uses read it; they write it, too, unless `facts` says no.
// - Durations are those measured; KernelTimes::Typical where a launch was not measured, 10 us where none was.
//   `sizes` has the size of each block, in whole chunks; a block that it lacks is left out, unless the trace
//   has its allocation. `times` and `facts` may be null.
RecordedWorkload MakeRecordedWorkload(const Trace& trace, LaunchIndex start, uint32_t iteration_launches,
                                      const BlockSizes& sizes, const KernelTimes* times,
                                      const WriteFacts* facts);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_RECORDED_WORKLOAD_H_
