#include "allocator/residency/gate_slots.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/residency/test_points.h"

namespace spillway::allocator {
namespace {

// Slots belong to threads, not to devices: one thread is inside one gate at a time, and waiting for a thread that is
// inside another device's gate costs a microsecond.
GateSlots::Slot slots[GateSlots::kSlots];

struct ThreadSlot {
  GateSlots::Slot* slot = nullptr;
  std::atomic<bool>* taken = nullptr;
  ~ThreadSlot() {
    if (taken != nullptr) taken->store(false, std::memory_order_release);
  }
};
thread_local ThreadSlot this_thread_slot;

bool RegisterMembarrier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

}  // namespace

GateSlots::GateSlots() : fence_(!RegisterMembarrier()) {}

GateSlots::Slot* GateSlots::ForThisThread() {
  if (this_thread_slot.slot != nullptr) return this_thread_slot.slot;
  for (Slot& slot : slots) {
    bool expected = false;
    if (slot.taken_.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      this_thread_slot.slot = &slot;
      this_thread_slot.taken = &slot.taken_;
      return &slot;
    }
  }
  return nullptr;
}

void GateSlots::WaitForAll() const {
  if (SPILLWAY_MUTANT(kSkipSlotWait)) return;
  if (fence_) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
  for (const Slot& slot : slots) {
    const uint64_t seen = slot.count_.load(std::memory_order_acquire);
    if (seen % 2 == 0) continue;
    while (slot.count_.load(std::memory_order_acquire) == seen) sched_yield();
  }
}

}  // namespace spillway::allocator
