// GateSlots: lets launching threads check states and launch without a lock, and lets the evictor know when every
// thread that might have seen an old state has left. The evictor pays for the ordering (membarrier), the launch path
// has two plain stores.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_READ_SIDE_SECTIONS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_READ_SIDE_SECTIONS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "allocator/memory/test_points.h"
#include "io/os/atomic.h"
#include "io/os/barrier.h"
#include "io/os/wait.h"

namespace spillway::allocator {

class GateSlots {
 public:
  static constexpr int kSlots = 255;  // so that a slot's number fits a byte

  // A slot in the calling thread's name. Between Enter and Leave the thread may check states, launch and stamp; it
  // must not wait for anything.
  class alignas(64) Slot {
   public:
    void Enter(bool fence) {
      // Odd: inside. Pairs with the evictor's load after its barrier: either it sees us inside and waits, or we see
      // the state that it wrote before.
      count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      if (fence && !SPILLWAY_MUTANT(kNoFence)) {
        os::FullFence();
      } else {
        os::LightBarrier();  // the evictor's heavy one does the rest
      }
    }
    // Release: the stamps written inside are visible to whoever sees the slot left.
    void Leave() { count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

   private:
    friend class GateSlots;
    os::Atomic<uint64_t> count_{0};
    os::Atomic<bool> taken_{false};
    uint8_t number_ = 0;  // written by the first thread that takes it, before it is used
  };

  GateSlots();

  // The calling thread's slot, kept for the thread's life and given back at its end; null when all are taken (the
  // caller then launches under pins instead).
  static Slot* ForThisThread();
  // 1 to kSlots; 0 for no slot. A slot that goes to another thread keeps its number.
  static uint8_t NumberOf(const Slot* slot) { return slot == nullptr ? uint8_t{0} : slot->number_; }
  // Whether Enter must pay for the ordering, because the kernel has no membarrier.
  bool fence() const { return fence_; }

  // Returns once every slot that was inside when called has been left since. States written before the call are seen
  // by everyone who enters after it. Must not be called from inside a slot.
  // Not ended by anything else: a launch is one call of the driver; entered in `waits` when it takes long.
  void WaitForAll(os::WaitList* waits) const;

 private:
  const bool fence_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_READ_SIDE_SECTIONS_H_
