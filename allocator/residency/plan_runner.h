// PlanRunner: carries a MigrationPlan out. It counts completions on the GPU, starts the plan's evictions after their
// launches have completed and its fetches as soon as they fit, in order, ahead of need. It only ever takes free
// chunks; what the plan got wrong costs what faulting on demand costs.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_RUNNER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_RUNNER_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "allocator/residency/core.h"
#include "allocator/residency/evictor.h"
#include "allocator/residency/faulter.h"
#include "policy/plan.h"

namespace spillway::allocator {

class PlanRunner {
 public:
  PlanRunner(Core* core, Evictor* evictor, Faulter* faulter);

  // Takes a plan over from the next Step on; null drops the one in force. Any thread.
  void Set(std::shared_ptr<const policy::MigrationPlan> plan);
  bool active() const { return active_.load(std::memory_order_relaxed); }

  // Starts what may start now. True when something was started. Device's thread. `room_wanted`: a launch waits for
  // chunks, so nothing is fetched ahead.
  bool Step(bool room_wanted);
  // Chunks that the next fetch lacks; 0 when it lacks none. Cached blocks are stripped for it, live blocks never.
  // Device's thread.
  uint64_t chunks_wanted() const { return chunks_wanted_; }
  // Launches from now until the block's next use by the plan; kNever without a plan or a use. Device's thread.
  uint64_t DistanceToNextUse(const Block& block) const;

 private:
  void Adopt();
  bool LaunchCompleted(policy::LaunchIndex index) const;
  bool RunEvictions();
  bool RunFetches();
  policy::LaunchIndex NextUseFrom(const policy::PlanStep& step) const;
  bool StartFetch(const policy::PlanStep& step);
  policy::LaunchIndex IndexOf(uint64_t lap, uint32_t position) const;

  Core* const core_;
  Evictor* const evictor_;
  Faulter* const faulter_;
  std::atomic<bool> active_{false};

  os::Mutex mu_{os::LockRank::kRecorder};
  std::shared_ptr<const policy::MigrationPlan> next_ ABSL_GUARDED_BY(mu_);
  bool changed_ ABSL_GUARDED_BY(mu_) = false;

  // ---- Device's thread.
  std::shared_ptr<const policy::MigrationPlan> plan_;
  std::vector<policy::PlanStep> evictions_;  // of the plan, in order
  std::vector<policy::PlanStep> fetches_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> uses_;  // block -> positions, ascending
  uint64_t evict_lap_ = 0, fetch_lap_ = 0;  // periods that the cursors have gone through since plan_->start
  size_t evict_at_ = 0, fetch_at_ = 0;
  uint64_t chunks_wanted_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_RUNNER_H_
