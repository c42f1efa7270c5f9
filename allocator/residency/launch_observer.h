// What the gate tells about each launch that it lets through: the recorder's side of prediction implements it.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_OBSERVER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_OBSERVER_H_

#include <cstdint>

#include "allocator/memory/block_id.h"
#include "policy/units.h"

namespace spillway::allocator {

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // The launch with this index has been enqueued: indices of one device count up from 0 without gaps, but two
  // threads may report theirs in either order. `tag` names what was launched (function, or kind of copy). On the
  // launching thread, with no lock held: must not block, and must not allocate in the steady state.
  virtual void OnLaunch(int device, policy::LaunchIndex index, uint64_t tag, const AccessSet& set) = 0;
  // A block was handed out (bytes in whole chunks) or freed, between the launches around it.
  virtual void OnAllocate(int device, BlockId block, uint64_t bytes) = 0;
  virtual void OnFree(int device, BlockId block) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_OBSERVER_H_
