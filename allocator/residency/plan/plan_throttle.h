// PlanThrottle: what launching threads have to know of the plan in force. After which launches an event is
// due, so that the plan's triggers are seen when they happen. Which launch must have completed before the
// next may go, so that launches far in the future do not take memory now. Launches reads it without a lock;
// PlanRunner replaces it, one thread at a time. Nothing here fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_THROTTLE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_THROTTLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "io/os/atomic.h"
#include "policy/model/plan.h"
#include "policy/model/units.h"

namespace spillway::allocator {

class PlanThrottle {
 public:
  struct Table {
    policy::LaunchIndex start = 0;
    // By position in the iteration: launches that may be uncompleted when this one goes; 0: any number.
    std::vector<uint32_t> ahead;
    std::vector<uint8_t> event;
  };
  static std::unique_ptr<const Table> MakeTable(const policy::MigrationPlan& plan);

  // Replaces the table; null: no plan. Old tables are freed when no thread reads them, here or in
  // FreeRetired. One thread at a time.
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
  // Launching threads that read a table. Sequentially consistent with FreeRetired: either it sees them, or
  // they see the table that is in force by then.
  mutable os::Atomic<int> readers_{0};
  std::vector<std::unique_ptr<const Table>>
      tables_;  // the one in force, and retired ones that may still be read
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_THROTTLE_H_
