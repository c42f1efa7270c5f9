// RecordedWorkload: one period of a recorded trace as a workload, the form that the offline planner works on. Tensors are
// the lives of blocks: what the trace says about hand-outs and frees decides how long a block's memory is held.

#ifndef SPILLWAY_POLICY_PLANNER_RECORDED_WORKLOAD_H_
#define SPILLWAY_POLICY_PLANNER_RECORDED_WORKLOAD_H_

#include <vector>

#include "policy/planner/plan.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/trace.h"
#include "policy/trace/workload.h"
#include "policy/trace/write_facts.h"

namespace spillway::policy {

struct RecordedWorkload {
  Workload workload;               // kernel k is the launch at position k
  std::vector<TraceBlock> blocks;  // of each tensor; a block that is handed out n times is n tensors
  MigrationPlan expected;          // of the same launches: start, period, launches and uses, no steps
  uint32_t measured = 0;           // kernels whose durations were measured
};

// The period is the `period` launches of `trace` from `start` on, taken to repeat for ever: what is handed out in it and
// not freed is freed in the next, at the place where this one frees a block of that name.
// - A block that is neither handed out nor freed in the period is persistent. Any other lives from its first use after it
//   was handed out, which writes it without reading, to the launch before which it is freed.
// - Further uses read it; they write it, too, unless `facts` says no.
// - Durations are those measured, KernelTimes::Typical where a launch was not, 10 us where nothing was.
// `sizes` has each block, in whole chunks; one that it lacks is left out, unless the trace has its hand-out. `times` and
// `facts` may be null.
RecordedWorkload MakeRecordedWorkload(const Trace& trace, LaunchIndex start, uint32_t period,
                                      const BlockSizes& sizes, const KernelTimes* times,
                                      const WriteFacts* facts);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_RECORDED_WORKLOAD_H_
