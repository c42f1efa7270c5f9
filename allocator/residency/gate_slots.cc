#include "allocator/residency/gate_slots.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "allocator/residency/test_points.h"

namespace spillway::allocator {
namespace {

// Slots belong to threads, not to devices: one thread is inside one gate at a time, and waiting for a thread that is
// inside another device's gate costs a microsecond.
GateSlots::Slot slots[GateSlots::kSlots];

constexpr int kSpins = 500;  // about 10 us

struct ThreadSlot {
  GateSlots::Slot* slot = nullptr;
  std::atomic<bool>* taken = nullptr;
  ~ThreadSlot();
};
thread_local bool this_thread_ends = false;
thread_local ThreadSlot this_thread_slot;

// Destructors of other thread-locals may launch after this: without a slot, which is another thread's by then.
ThreadSlot::~ThreadSlot() {
  this_thread_ends = true;
  slot = nullptr;
  if (taken != nullptr) taken->store(false, std::memory_order_release);
}

// A launch takes microseconds, so the wait spins first. Not sched_yield: on a busy machine that gives a whole time
// slice away.
void Pause(int spins) {
  if (spins < kSpins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    return;
  }
  constexpr timespec kNap = {0, 20'000};
  nanosleep(&kNap, nullptr);
}

bool RegisterMembarrier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

}  // namespace

GateSlots::GateSlots() : fence_(!RegisterMembarrier()) {}

GateSlots::Slot* GateSlots::ForThisThread() {
  if (this_thread_slot.slot != nullptr) return this_thread_slot.slot;
  if (this_thread_ends) return nullptr;
  for (Slot& slot : slots) {
    bool expected = false;
    if (slot.taken_.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      slot.number_ = static_cast<uint8_t>(&slot - slots + 1);
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
    FullFence();
  } else {
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
  for (const Slot& slot : slots) {
    const uint64_t seen = slot.count_.load(std::memory_order_acquire);
    if (seen % 2 == 0) continue;
    for (int spins = 0; slot.count_.load(std::memory_order_acquire) == seen; ++spins) Pause(spins);
  }
}

}  // namespace spillway::allocator
