#include "allocator/residency/state/read_side_sections.h"

#include <optional>

#include "allocator/memory/test_points.h"
#include "io/os/per_thread.h"

namespace spillway::allocator {
namespace {

constexpr int kLongWait = 10'000;  // pauses, some 100 ms: a launch takes microseconds

// Slots belong to threads, not to devices: one thread is inside one gate at a time, and waiting for a thread that is
// inside another device's gate costs a microsecond.
GateSlots::Slot slots[GateSlots::kSlots];

// Apart from what gives it back: it has no destructor, so that it may be read after all others have run.
struct ThreadSlot {
  GateSlots::Slot* slot = nullptr;
  bool ends = false;  // the thread
};

struct SlotReturn {
  os::Atomic<bool>* taken = nullptr;
  // Destructors of other thread-locals may launch after this: without a slot, which is another thread's by then.
  ~SlotReturn() {
    os::PerThread<ThreadSlot>() = {nullptr, true};
    if (taken != nullptr) taken->store(false, std::memory_order_release);
  }
};

}  // namespace

GateSlots::GateSlots() : fence_(!os::RegisterAsymmetricBarrier()) {}

GateSlots::Slot* GateSlots::ForThisThread() {
  ThreadSlot& mine = os::PerThread<ThreadSlot>();
  if (mine.slot != nullptr) return mine.slot;
  if (mine.ends) return nullptr;
  for (Slot& slot : slots) {
    // Looked at first: an exchange would take the line away from the thread that is inside.
    bool expected = slot.taken_.load(std::memory_order_relaxed);
    if (!expected && slot.taken_.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      slot.number_ = static_cast<uint8_t>(&slot - slots + 1);
      mine.slot = &slot;
      os::PerThread<SlotReturn>().taken = &slot.taken_;
      return &slot;
    }
  }
  return nullptr;
}

void GateSlots::WaitForAll(os::WaitList* waits) const {
  if (SPILLWAY_MUTANT(kSkipSlotWait)) return;
  if (SPILLWAY_MUTANT(kNoBarrier)) {
    // Nothing.
  } else if (fence_) {
    os::FullFence();
  } else {
    // To go on without it would be to miss stores.
    std::optional<os::Wait> wait;
    while (!os::HeavyBarrier()) {
      if (!wait) wait.emplace(waits, os::WaitKind::kGateSlots, "memory of the kernel for a barrier");
      os::SpinPause(kLongWait);
    }
  }
  for (const Slot& slot : slots) {
    const uint64_t seen = slot.count_.load(std::memory_order_acquire);
    if (seen % 2 == 0) continue;
    std::optional<os::Wait> wait;
    for (int spins = 0; slot.count_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins == kLongWait) wait.emplace(waits, os::WaitKind::kGateSlots, "a launch that is being made");
      os::SpinPause(spins);
    }
  }
}

}  // namespace spillway::allocator
