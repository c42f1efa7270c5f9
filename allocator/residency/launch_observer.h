// What the gate tells about each launch that it lets through: the recorder's side of prediction implements it.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_OBSERVER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_OBSERVER_H_

#include <cstdint>

#include "allocator/memory/block_id.h"
#include "allocator/residency/stream_ref.h"
#include "io/os/atomic.h"
#include "policy/trace/units.h"

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

  // Whether the launch that comes next is to be announced by the two calls below, for who measures launches on the GPU.
  // Asked at each launch's entry into the gate.
  bool wants_marks() const { return wants_marks_.load(std::memory_order_relaxed); }
  // A launch has entered the gate; nothing of ours has been enqueued for it and it has waited for nothing. No stream is
  // under capture. As OnLaunch.
  virtual void OnEnter(const StreamRef& stream) {}
  // Waits for what the launch needs are enqueued on its stream; the real launch comes next, unless it fails or is
  // repeated. May be called inside a gate slot. No stream is under capture. As OnLaunch.
  virtual void OnReady(const StreamRef& stream) {}
  // A stream is about to be destroyed or captured: what was begun on it is not to be ended. Any thread.
  virtual void OnInterrupt() {}

 protected:
  os::Atomic<bool> wants_marks_{false};  // stored by the observer, at any time
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_OBSERVER_H_
