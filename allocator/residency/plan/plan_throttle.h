// PlanThrottle: the part of the plan in force that launching threads need. It names the launches after which
// an event is due, so that the plan's triggers are seen when they happen. It also names the launch that must
// have completed before the next may go, so that launches far in the future do not take memory now. Launches
// reads it without a lock; PlanRunner replaces it, one thread at a time. Nothing here fails.

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
    // Launches that may be uncompleted when this one goes, by position in the iteration; 0 means any number.
    std::vector<uint32_t> ahead;
    std::vector<uint8_t> event;
  };
  static std::unique_ptr<const Table> MakeTable(const policy::MigrationPlan& plan);

  // Replaces the table; null stands for no plan. Old tables are freed when no thread reads them, here or in
  // FreeRetired. One thread at a time.
  void Set(std::unique_ptr<const Table> table);
  void FreeRetired();

  // ---- Any thread, lock-free.

  bool active() const { return table_.load(std::memory_order_relaxed) != nullptr; }
  // Whether the plan needs to know when launch `index` has completed. False without a plan.
  bool EventAfter(policy::LaunchIndex index) const;
  // The launch that must have completed before launch `index` may go; kNever for none.
  policy::LaunchIndex MustHaveCompleted(policy::LaunchIndex index) const;

 private:
  os::Atomic<const Table*> table_{nullptr};
  // Number of launching threads that read a table. Sequentially consistent with FreeRetired: either it sees
  // the readers, or they see the table that is in force by then.
  mutable os::Atomic<int> readers_{0};
  std::vector<std::unique_ptr<const Table>>
      tables_;  // the one in force, and retired ones that may still be read
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_THROTTLE_H_
