// PlanRunner: carries a MigrationPlan out on a device. It counts completions on the GPU, and begins the ops
// whose turn has come by policy's PlanCursor: evictions, copies out and fetches. It only ever takes free
// chunks; blocks that the plan got wrong are faulted on demand. The predictor sets plans, on any thread, by
// way of DeviceResidency; everything else runs on the device's thread. The Evictor and the Faulter deal with
// an op that fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_RUNNER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "allocator/residency/plan/plan_throttle.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/launch_log.h"
#include "allocator/residency/state/planned_uses.h"
#include "allocator/residency/transfer/evictor.h"
#include "allocator/residency/transfer/faulter.h"
#include "policy/model/plan.h"
#include "policy/model/plan_cursor.h"

namespace spillway::allocator {

class PlanRunner final : public PlannedUses, private policy::PlanMover {
 public:
  PlanRunner(Core* core, Charges* charges, const LaunchLog* log, Evictor* evictor, Faulter* faulter);

  // Puts the plan in force from the next Poll on; null drops the plan in force. Any thread. Does not allocate
  // for null or for hints (MigrationPlan::hints), which a departure puts in the plan's place.
  void Set(std::shared_ptr<const policy::MigrationPlan> plan);
  // Whether a plan is in force that the job follows. False with hints.
  bool active() const override { return throttle_.active(); }
  // The part of the plan in force that launching threads need.
  const PlanThrottle& throttle() const { return throttle_; }

  // ---- Device's thread.

  // Starts the ops that may start now. Returns true when one was started. `launch_waits` tells that a launch
  // waits for chunks, so nothing is fetched ahead.
  bool Poll(bool launch_waits);
  // Chunks that the next fetch lacks; 0 when it lacks none. Cached blocks are decommitted for it, live blocks
  // never.
  uint64_t chunks_wanted() const override { return cursor_.bytes_wanted() / core_->chunk_bytes; }
  // The place in the plan from which the next use of a block is counted: the host's, or the plan's start.
  policy::LaunchIndex Now() const override { return cursor_.Now(); }
  // The launch, `now` or later, that next uses the block by the plan. kNever without a use, without a plan,
  // and with hints, since blocks leave by recency then.
  policy::LaunchIndex NextUse(const Block& block, policy::LaunchIndex now) const override {
    return hints_ ? policy::kNever : cursor_.NextUse(block.id.raw(), now);
  }
  // Changes with the plan to which NextUse refers.
  uint64_t plan_number() const override { return plan_number_; }
  // Notes that a block leaves outside the plan.
  void RecordUnplannedLocked(const TableLock& lock, const Block& block) override;

 private:
  // ---- For the cursor.
  bool Visit(policy::PlanBlock block, policy::PlanTier tier,
             absl::FunctionRef<policy::PlanMove(const policy::PlanBlockView&)> decide) override;
  bool Completed(policy::LaunchIndex launch) override { return log_->Completed(launch); }
  policy::LaunchIndex Launched() const override { return log_->count(); }
  bool IsBusy(policy::PlanTier tier, size_t fetches, policy::Bytes bytes) const override;
  double RateOut(policy::PlanTier tier) const override;

  bool BeginFetchLocked(TableLock* lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  policy::PlanBlockView ViewOfLocked(const TableLock& lock, const Block& block) const;
  void Adopt();
  void FollowGpu();
  bool PassLongLaunch();

  Core* const core_;
  Charges* const charges_;
  const LaunchLog* const log_;
  Evictor* const evictor_;
  Faulter* const faulter_;
  PlanThrottle throttle_;  // of the plan in force; replaced by Set alone

  os::Mutex mu_{os::LockRank::kRecorder};
  std::shared_ptr<const policy::MigrationPlan> next_ ABSL_GUARDED_BY(mu_);
  bool changed_ ABSL_GUARDED_BY(mu_) = false;

  // ---- Device's thread.
  uint64_t plan_number_ = 0;
  bool hints_ = false;  // the cursor has hints
  policy::PlanCursor cursor_;
  policy::LaunchIndex gpu_ = 0;  // all launches before it have completed
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_RUNNER_H_
