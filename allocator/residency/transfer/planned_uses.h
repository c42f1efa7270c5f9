// PlannedUses: what the choice of victims asks of the plan in force. PlanRunner implements it; Reclaimer
// asks, on the device's thread. Nothing here fails. Without a plan `active` is false, and blocks have no next
// use.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_PLANNED_USES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_PLANNED_USES_H_

#include <cstdint>

#include "allocator/residency/state/block_table.h"
#include "policy/trace/units.h"

namespace spillway::allocator {

class PlannedUses {
 public:
  virtual ~PlannedUses() = default;
  virtual bool active() const = 0;
  // The place from which the next use of a block is counted: the host's, or the plan's start.
  virtual policy::LaunchIndex Now() const = 0;
  // The launch, `now` or later, that next uses the block by the plan; kNever without a plan or a use.
  virtual policy::LaunchIndex NextUse(const Block& block, policy::LaunchIndex now) const = 0;
  // Changes with the plan that NextUse is of.
  virtual uint64_t plan_number() const = 0;
  // Whether evictions of the plan are still to come whose launches the host has launched already. A launch
  // that lacks chunks waits for those.
  virtual bool EvictionsToCome() const = 0;
  // Chunks that the next fetch of the plan lacks; 0 when it lacks none. Cached blocks are decommitted for it,
  // live blocks never.
  virtual uint64_t chunks_wanted() const = 0;
  // Notes that a block leaves outside the plan.
  virtual void NoteUnplannedLocked(const TableLock& lock, const Block& block) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_PLANNED_USES_H_
