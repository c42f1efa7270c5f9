// PlannedUses: what the plan in force says about blocks. PlanRunner implements it. Reclaimer, Demoter and Pauser
// ask, so that the blocks that are used soon stay near. Nothing here fails. Without a plan, `active` is false
// and blocks have no next use. Device's thread.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_PLANNED_USES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_PLANNED_USES_H_

#include <cstdint>

#include "allocator/residency/state/block.h"
#include "allocator/residency/state/block_table.h"
#include "policy/model/units.h"

namespace spillway::allocator {

class PlannedUses {
 public:
  virtual ~PlannedUses() = default;
  virtual bool active() const = 0;
  // The place in the plan from which the next use of a block is counted: the host's, or the plan's start.
  virtual policy::LaunchIndex Now() const = 0;
  // The launch, `now` or later, that next uses the block by the plan; kNever without a plan or a use.
  virtual policy::LaunchIndex NextUse(const Block& block, policy::LaunchIndex now) const = 0;
  // Changes with the plan to which NextUse refers.
  virtual uint64_t plan_number() const = 0;
  // Chunks that the next fetch of the plan lacks; 0 when it lacks none. Cached blocks are decommitted for it,
  // live blocks never.
  virtual uint64_t chunks_wanted() const = 0;
  // Records that a block leaves outside the plan.
  virtual void RecordUnplannedLocked(const TableLock& lock, const Block& block) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_PLANNED_USES_H_
