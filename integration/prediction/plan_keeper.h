// PlanKeeper: the plans of the sequences that the job repeats. A plan is made when the job comes to a
// sequence, used again when it comes back, improved in between, and made anew when the machine or the facts
// about launches have changed. The plan's hints are kept after a departure. Only the predictor's thread uses
// it: there is no lock. No call fails: a sequence that cannot be planned has no plan.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_PLAN_KEEPER_H_
#define SPILLWAY_INTEGRATION_PREDICTION_PLAN_KEEPER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "allocator/residency/residency.h"
#include "integration/prediction/job_follower.h"
#include "integration/prediction/planning_machine.h"
#include "integration/prediction/sequence_plan.h"
#include "policy/model/plan.h"
#include "policy/planner/plan_hints.h"
#include "policy/trace/kernel_times.h"

namespace spillway::integration {

class PlanKeeper {
 public:
  using Plan = std::shared_ptr<const policy::MigrationPlan>;
  using WriteFacts = std::function<std::shared_ptr<const policy::WriteFacts>()>;
  enum class Change : uint8_t { kNone, kAnew, kBetter };

  // `host_bytes`, `has_disk`, `known_rates`, `write_facts`: as in PredictorOptions. `job` and `times` must
  // outlive it.
  PlanKeeper(std::function<uint64_t()> host_bytes, bool has_disk, const KnownRates& known_rates,
             WriteFacts write_facts, const JobFollower* job, const policy::KernelTimes* times)
      : machine_(std::move(host_bytes), has_disk, known_rates),
        write_facts_(std::move(write_facts)),
        job_(*job),
        times_(*times) {}

  // The plan of the sequence that the job has come to; null: it has none.
  Plan Enter(const allocator::Residency* residency);
  // Plans of sequences that the tracker has forgotten go.
  void ForgetUnknown();
  // Called when launches have followed the sequence. If the memory to plan for has changed (by external
  // allocations, refused chunks or other jobs), the sequence is planned anew at once. All other changes are checked when
  // an iteration has ended, and better plans take over then. Unless it returns kNone, the caller puts
  // Current() in force.
  Change KeepUpToDate(const allocator::Residency* residency);
  Plan Current();
  // Does one slice of work on a better plan. False when there is nothing to try.
  bool Improve();
  // The forecast of the plan in force, or of the last one.
  const policy::Forecast& forecast() const { return forecast_; }
  // Uses of blocks in an iteration of it, and those of which it was known, or guessed, whether they write.
  uint64_t accesses() const { return accesses_; }
  uint64_t accesses_known() const { return accesses_known_; }
  uint64_t readoptions() const { return readoptions_; }  // of sequences that had been left

  // ---- Hints, which are of use while the job is on no sequence.

  // The hints of a plan that is put in force, for use after a departure.
  Plan MakeHints(const policy::MigrationPlan& plan);
  void DropHints() { hints_.reset(); }
  // The job, which is on no sequence, has made this launch.
  void FollowHints(policy::LaunchIndex index, const policy::LaunchRecord& launch);
  // Whether other hints are to be put in force since the last call: `plan`, or null, and then there are none
  // any more.
  bool TakeMovedHints(Plan* plan);

  // The facts about writes when they were last asked for; may be null.
  const policy::WriteFacts* writes() const { return writes_.get(); }

 private:
  policy::RuntimeMachine MachineNow(const allocator::Residency* residency) {
    return machine_.Now(residency, job_.sequence(), job_.iteration(), job_.sizes(), job_.latest_copied());
  }
  LearntFacts Facts();
  SequencePlan* PlanNow();

  PlanningMachine machine_;
  const WriteFacts write_facts_;
  const JobFollower& job_;
  const policy::KernelTimes& times_;
  std::map<policy::SequenceId, std::unique_ptr<SequencePlan>> plans_;
  bool entered_ = false;     // the sequence, and its plan has not been checked since
  uint64_t iterations_ = 0;  // of the sequence, when its plan was last checked
  std::optional<policy::PlanHints> hints_;
  bool hints_moved_ = false;
  std::shared_ptr<const policy::WriteFacts> writes_;
  policy::Forecast forecast_;
  uint64_t accesses_ = 0, accesses_known_ = 0;
  uint64_t readoptions_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_PLAN_KEEPER_H_
