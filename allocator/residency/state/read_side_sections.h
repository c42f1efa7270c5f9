// ReadSections: lets launching threads read states and launch without a lock, and lets the Evictor wait until
// every thread that may have seen an old state has left. The Evictor pays for the ordering (membarrier); a
// launch pays two plain stores. Launches enters sections, and the Evictor waits for them. A thread without a
// section launches under pins instead; nothing here fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_READ_SIDE_SECTIONS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_READ_SIDE_SECTIONS_H_

#include <atomic>
#include <cstdint>

#include "allocator/memory/test_points.h"
#include "io/os/atomic.h"
#include "io/os/barrier.h"
#include "io/os/wait.h"

namespace spillway::allocator {

class ReadSections {
 public:
  static constexpr int kSections = 255;  // so that a section's number fits a byte

  // A thread's section. Between Enter and Leave the thread may read states, launch and record uses. It must
  // not wait for anything.
  class alignas(64) Section {
   public:
    void Enter(bool fence) {
      // An odd count means inside. This store pairs with the Evictor's load after its barrier: either the
      // Evictor sees the thread inside and waits, or the thread sees the state that the Evictor wrote before.
      count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      if (fence && !SPILLWAY_MUTANT(kNoFence)) {
        os::FullFence();
      } else {
        os::LightBarrier();  // the Evictor's heavy barrier does the rest
      }
    }
    // Release order: uses recorded inside are visible to a thread that sees the section left.
    void Leave() { count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

   private:
    friend class ReadSections;
    os::Atomic<uint64_t> count_{0};
    os::Atomic<bool> taken_{false};
    uint8_t number_ = 0;  // written by the first thread that takes it, before it is used
  };

  ReadSections();

  // The calling thread's section, kept for the thread's life and given back at its end. Null when all are
  // taken; the caller then launches under pins.
  static Section* ForThisThread();
  // A number from 1 to kSections; 0 for null. A section that goes to another thread keeps its number.
  static uint8_t NumberOf(const Section* section) {
    return section == nullptr ? uint8_t{0} : section->number_;
  }
  // Whether Enter must pay for the ordering, because the kernel has no membarrier.
  bool fence() const { return fence_; }

  // Returns once every section that was entered before the call has been left. A thread that enters after the
  // call sees all states written before it. Must not be called from inside a section. The wait has no limit,
  // since a section lasts one call of the driver; a long wait is entered in `waits`.
  void WaitForAll(os::WaitList* waits) const;

 private:
  const bool fence_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_READ_SIDE_SECTIONS_H_
