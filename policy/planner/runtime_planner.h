// RuntimePlanner: the planner (docs/planner.md) at run time. It takes one recorded iteration and the measured
// rates of the machine. It has a plan at once, and better ones after further slices of work. BlockMachine
// tries the plans and forecasts their iteration times, by the rules that carry plans out on a device. The
// predictor's thread keeps one for each sequence. One thread at a time; a job that cannot be planned has no
// plan.

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
  // gpu_bytes is all memory that the iteration's blocks may ever use. The planner leaves a margin of it if
  // something has to move. Whole blocks move: piece_bytes is ignored. Rates are as measured; a guess replaces
  // one that is not positive.
  Machine machine;
  bool has_disk = true;  // false: host memory is all there is
  // The planner leaves gpu_bytes / free_part free, for needs that the plan does not foresee.
  uint32_t free_part = 16;
  // The host asks for blocks this far ahead of the GPU while a plan is in force: memory is taken, and bytes
  // are due, that much earlier. Both 0: the host asks when the GPU comes to the launch.
  RunAhead run_ahead = {0, 0};
};

// A job is steady after this many iterations in a row, each followed to its end: it will hardly do anything
// else.
inline constexpr uint64_t kSteadyIterations = 2;
// The same machine for a steady job: less is left free, and the host is less far ahead where launches are
// long.
RuntimeMachine WhenSteady(RuntimeMachine machine);

// The forecast of one iteration under the plan that Plan() returns.
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

  // Whether nothing has to leave in so much memory: the blocks as recorded fit, without a margin.
  bool Fits(Bytes gpu_bytes) const { return true_lifetimes_.PeakLive() <= static_cast<int64_t>(gpu_bytes); }

  // The best plan so far. It changes only for a plan that is better by enough to be worth the change. Null
  // when no plan lets the iteration run in this memory: blocks then move on demand.
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
  // The workload that is planned for, whose uses reach back by the host's run-ahead.
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
