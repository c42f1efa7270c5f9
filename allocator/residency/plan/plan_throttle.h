// PlanPace: what launching threads have to know of the plan in force: after which launches an event is due, so that the
// plan's triggers are seen when they happen, and which launch must have completed before the next may go, so that
// memory is not held by launches far in the future. Read without a lock; one thread at a time replaces it.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_THROTTLE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_THROTTLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "io/os/atomic.h"
#include "policy/planner/plan.h"
#include "policy/trace/units.h"

namespace spillway::allocator {

class PlanPace {
 public:
  // The host may be so many launches ahead of the GPU, or so much GPU time, whichever is more.
  static constexpr uint32_t kLaunchesAhead = 4;
  static constexpr policy::Nanos kNanosAhead = 2'000'000;

  struct Table {
    policy::LaunchIndex start = 0;
    // By position: launches that may be on their way when this one goes; 0: as many as like.
    std::vector<uint32_t> ahead;
    std::vector<uint8_t> event;
  };
  static std::unique_ptr<const Table> MakeTable(const policy::MigrationPlan& plan);

  // Null: no plan. Old tables are freed when nobody looks at them, here or in FreeRetired. One thread at a time.
  void Set(std::unique_ptr<const Table> table);
  void FreeRetired();

  // ---- Any thread, lock-free.

  bool active() const { return table_.load(std::memory_order_relaxed) != nullptr; }
  // Whether the plan wants to know when launch `index` has completed. Without a plan: false.
  bool EventAfter(policy::LaunchIndex index) const;
  // The launch that must have completed before launch `index` may go; kNever: none.
  policy::LaunchIndex MustHaveCompleted(policy::LaunchIndex index) const;

 private:
  os::Atomic<const Table*> table_{nullptr};
  // Launching threads that look at a table. Sequentially consistent with FreeRetired: it sees them, or they see the
  // table that is in force by then.
  mutable os::Atomic<int> readers_{0};
  std::vector<std::unique_ptr<const Table>> tables_;  // in force, and retired but maybe looked at
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_THROTTLE_H_
