// PlannedUses: what the choice of victims asks of the plan in force. The side that carries plans out implements it; the
// Reclaimer, on the device's thread, asks.

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
  // The launch that next uses a block is reckoned from here on: the host's place, or the plan's start.
  virtual policy::LaunchIndex Now() const = 0;
  // The launch, `now` or later, that next uses the block by the plan; kNever without a plan or a use.
  virtual policy::LaunchIndex NextUse(const Block& block, policy::LaunchIndex now) const = 0;
  // Changes with the plan that NextUse is of.
  virtual uint64_t plan_number() const = 0;
  // Whether evictions of the plan are still to come whose launches the host has launched already: a launch that lacks
  // room waits for them.
  virtual bool EvictionsToCome() const = 0;
  // Chunks that the next fetch lacks; 0 when it lacks none. Cached blocks are stripped for it, live blocks never.
  virtual uint64_t chunks_wanted() const = 0;
  // A block leaves outside the plan.
  virtual void NoteUnplannedLocked(const TableLock& lock, const Block& block) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_PLANNED_USES_H_
