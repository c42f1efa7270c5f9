// ReplayPlan: a job of one recorded iteration after the other, with a MigrationPlan carried out by the same
// PlanCursor as on a device: ops by completions on the GPU, fetches by headroom, what is missing on demand.
// Memory, links and the host's run-ahead are a model in the tests' hands, kept apart from the planner's own
// simulator so that one checks the other.

#ifndef SPILLWAY_TESTS_POLICY_PLANNER_PLAN_REPLAY_H_
#define SPILLWAY_TESTS_POLICY_PLANNER_PLAN_REPLAY_H_

#include <vector>

#include "policy/model/machine.h"
#include "policy/model/plan.h"
#include "policy/trace/recorded_workload.h"

namespace spillway::policy {

struct ReplayOptions {
  Machine machine;          // gpu_bytes: never exceeded; piece_bytes is not looked at
  uint32_t iterations = 6;  // the last two are measured
};

struct FetchStart {
  uint32_t tensor = 0;
  uint32_t running = 0;  // position of the launch on the GPU
};

struct Replay {
  Nanos iteration = 0;
  Bytes fetched = 0, spilled = 0;  // per measured iteration
  Bytes peak = 0;
  uint32_t faults = 0;                   // tensors fetched on demand, in the measured iterations
  uint32_t in_need = 0;                  // tensors evicted on demand there
  bool stuck = false;                    // nothing could go on
  std::vector<FetchStart> last_fetches;  // of the last iteration
};

// A null plan: everything on demand, least recently used first.
Replay ReplayPlan(const RecordedWorkload& recorded, const MigrationPlan* plan, const ReplayOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_PLANNER_PLAN_REPLAY_H_
