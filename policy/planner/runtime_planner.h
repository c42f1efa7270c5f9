// RuntimePlanner: the planner (docs/planner.md) at run time. Takes one recorded iteration and what the
// machine was measured to do. Has a plan at once and better ones after each further slice of work. Plans are
// tried, and what they bring is forecast, by the rules that carry them out (BlockMachine). The predictor's
// thread keeps one for each sequence. One thread at a time; a job that cannot be planned has no plan.

#ifndef SPILLWAY_POLICY_PLANNER_RUNTIME_PLANNER_H_
#define SPILLWAY_POLICY_PLANNER_RUNTIME_PLANNER_H_

#include <memory>
#include <vector>

#include "policy/model/machine.h"
#include "policy/model/plan.h"
#include "policy/planner/plan_search.h"
#include "policy/simulator/block_machine.h"
#include "policy/trace/recorded_workload.h"

namespace spillway::policy {

struct RuntimeMachine {
  // gpu_bytes: all memory that the iteration's blocks may ever use; the planner leaves a margin of it. Whole
  // blocks move, whatever piece_bytes says. Rates as measured; a guess replaces one that is not positive.
  Machine machine;
  bool has_disk = true;  // false: host memory is all there is
  // One part in so many of gpu_bytes is left free, for what the plan does not foresee.
  uint32_t free_part = 16;
  // How far ahead of the GPU the host asks for blocks while a plan is in force: memory is taken and bytes are
  // due that much earlier. Both 0: the host asks when the GPU comes to the launch.
  RunAhead run_ahead = {0, 0};
};

// After so many iterations in a row, each followed to its end, nothing else is likely to come from the job.
inline constexpr uint64_t kSteadyIterations = 2;
// The same machine for such a job: less is left free, and where launches are long the host is less ahead.
RuntimeMachine WhenSteady(RuntimeMachine machine);

// What the plan that Plan() returns should bring, for an iteration.
struct Forecast {
  Nanos ideal = 0;                           // all launches one after another, with everything on the GPU
  Nanos bound = 0;                           // no plan is faster on this machine (quick_bound)
  Nanos iteration = 0;                       // as BlockMachine carries the plan out; 0: not tried yet
  Bytes fetched_host = 0, fetched_disk = 0;  // to the GPU, by tier
  Bytes spilled_host = 0, spilled_disk = 0;  // from the GPU
};

// One thread at a time.
class RuntimePlanner {
 public:
  RuntimePlanner(RecordedWorkload recorded, const RuntimeMachine& machine);
  RuntimePlanner(const RuntimePlanner&) = delete;
  RuntimePlanner& operator=(const RuntimePlanner&) = delete;

  // The best plan so far; another object whenever there is one that is enough better to change to. Null when
  // no plan lets the iteration run in this memory: blocks then move on demand.
  std::shared_ptr<const MigrationPlan> Plan() const { return plan_; }

  // Tries one more plan. False when nothing is left to try. Takes about 15 us of CPU time per launch, some 80
  // ms for an iteration of 5,000.
  bool Improve();

  Forecast forecast() const { return forecast_; }

 private:
  void Widen();
  std::vector<uint32_t> KernelsAhead() const;
  MigrationPlan WithoutOps() const;
  std::shared_ptr<const MigrationPlan> MakePlan(TransferPlan transfers) const;
  absl::StatusOr<Execution> Try(const Machine& machine, const TransferPlan& transfers) const;
  void Adopt(std::shared_ptr<const MigrationPlan> plan);
  void AddOps(const TransferPlan& transfers, MigrationPlan* plan) const;
  uint32_t NextUse(uint32_t tensor, uint32_t position) const;
  uint32_t EarliestFetch(const IdleInterval& interval, const PlannedEviction& eviction, Nanos lead) const;

  const RecordedWorkload recorded_;
  const RuntimeMachine machine_;
  const Lifetimes true_lifetimes_;  // as recorded
  const BlockMachine block_machine_;
  const Machine machine_of_trials_;  // with all memory and rates
  Bytes largest_set_ = 0;
  // As planned for: uses reach back by the host's run-ahead.
  Workload workload_;
  Machine planned_machine_;
  Lifetimes lifetimes_;
  std::vector<Nanos> starts_ = {0};  // of each kernel of two iterations, and their end
  MigrationPlan without_ops_;
  std::unique_ptr<PlanSearch> search_;  // null: it cannot be planned, or nothing has to leave
  std::shared_ptr<const MigrationPlan> plan_;
  Forecast forecast_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_RUNTIME_PLANNER_H_
