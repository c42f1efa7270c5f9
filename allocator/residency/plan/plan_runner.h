// PlanRunner: carries a MigrationPlan out. It counts completions on the GPU, starts the plan's evictions after their
// launches have completed, and has PlanFetches bring blocks back ahead of need. It only ever takes free chunks; what
// the plan got wrong costs what faulting on demand costs.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_RUNNER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_RUNNER_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "allocator/residency/plan/plan_copies.h"
#include "allocator/residency/plan/plan_fetches.h"
#include "allocator/residency/plan/plan_throttle.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/launch_log.h"
#include "allocator/residency/transfer/evictor.h"
#include "allocator/residency/transfer/faulter.h"
#include "allocator/residency/transfer/planned_uses.h"
#include "policy/plan.h"

namespace spillway::allocator {

class PlanRunner : public PlannedUses {
 public:
  PlanRunner(Core* core, Charges* charges, const LaunchLog* log, Evictor* evictor, Faulter* faulter);

  // Takes a plan over from the next Step on; null drops the one in force. Any thread.
  void Set(std::shared_ptr<const policy::MigrationPlan> plan);
  bool active() const override { return pace_.active(); }
  // What launching threads have to know of the plan in force.
  const PlanPace& pace() const { return pace_; }

  // ---- Device's thread.

  // Starts what may start now. True when something was started. `room_wanted`: a launch waits for chunks, so nothing
  // is fetched ahead.
  bool Step(bool room_wanted);
  // Chunks that the next fetch lacks; 0 when it lacks none. Cached blocks are stripped for it, live blocks never.
  uint64_t chunks_wanted() const override { return fetches_.chunks_wanted(); }
  // The launch that next uses a block is reckoned from here on: the host's place, or the plan's start.
  policy::LaunchIndex Now() const override;
  // The launch, `now` or later, that next uses the block by the plan; kNever without a plan or a use.
  policy::LaunchIndex NextUse(const Block& block, policy::LaunchIndex now) const override {
    return plan_ == nullptr ? policy::kNever : NextUse(block.id.raw(), now);
  }
  // Changes with the plan that NextUse is of.
  uint64_t plan_number() const override { return plan_number_; }
  // Whether evictions of the plan are still to come whose launches the host has launched already: a launch that lacks
  // room waits for them.
  bool EvictionsToCome() const override;
  // A block leaves outside the plan.
  void NoteUnplannedLocked(const TableLock& lock, const Block& block) override;

 private:
  // A place in a list of steps that is gone through once a period.
  struct Cursor {
    std::vector<policy::PlanStep> steps;  // by launch
    uint64_t lap = 0;                     // periods gone through since the plan's start
    size_t at = 0;
    const policy::PlanStep& step() const { return steps[at]; }
    void Next() {
      if (++at < steps.size()) return;
      at = 0;
      ++lap;
    }
  };

  void Adopt();
  void AddWhatIsAway();
  void FollowGpu();
  bool RunEvictions();
  void QueueFetches();
  bool RunCopies();
  PlanCopies::Gap GapBefore(const Block& block) const;
  policy::LaunchIndex IndexOf(uint64_t lap, uint32_t position) const;
  // The block's first use from launch `from` on; kNever when the plan has none.
  policy::LaunchIndex NextUse(uint32_t block, policy::LaunchIndex from) const;

  Core* const core_;
  const LaunchLog* const log_;
  Evictor* const evictor_;
  PlanPace pace_;  // of the plan in force; replaced by Set alone

  os::Mutex mu_{os::LockRank::kRecorder};
  std::shared_ptr<const policy::MigrationPlan> next_ ABSL_GUARDED_BY(mu_);
  bool changed_ ABSL_GUARDED_BY(mu_) = false;

  // ---- Device's thread.
  std::shared_ptr<const policy::MigrationPlan> plan_;
  uint64_t plan_number_ = 0;
  Cursor evictions_;
  Cursor copy_steps_;
  Cursor fetch_steps_;
  PlanCopies copies_;
  PlanFetches fetches_;
  std::vector<policy::Nanos> starts_;  // by position, and the period's length; empty: durations are not known
  std::unordered_map<uint32_t, std::vector<uint32_t>> uses_;  // block -> positions, ascending
  policy::LaunchIndex gpu_ = 0;                               // all launches before it have completed
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_RUNNER_H_
