#include "allocator/residency/gate_slots.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "allocator/residency/test_points.h"
#include "io/os/check.h"

namespace spillway::allocator {
namespace {

// Slots belong to threads, not to devices: one thread is inside one gate at a time, and waiting for a thread that is
// inside another device's gate costs a microsecond.
GateSlots::Slot slots[GateSlots::kSlots];

constexpr int kSpins = 500;  // about 10 us

// Apart from what gives it back: these two have no destructor, so that they may be read after all others have run.
thread_local bool this_thread_ends = false;
thread_local GateSlots::Slot* this_thread_slot = nullptr;

struct SlotReturn {
  std::atomic<bool>* taken = nullptr;
  // Destructors of other thread-locals may launch after this: without a slot, which is another thread's by then.
  ~SlotReturn() {
    this_thread_ends = true;
    this_thread_slot = nullptr;
    if (taken != nullptr) taken->store(false, std::memory_order_release);
  }
};
thread_local SlotReturn this_thread_return;

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
  if (this_thread_slot != nullptr) return this_thread_slot;
  if (this_thread_ends) return nullptr;
  for (Slot& slot : slots) {
    // Looked at first: an exchange would take the line away from the thread that is inside.
    bool expected = slot.taken_.load(std::memory_order_relaxed);
    if (!expected && slot.taken_.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      slot.number_ = static_cast<uint8_t>(&slot - slots + 1);
      this_thread_slot = &slot;
      this_thread_return.taken = &slot.taken_;
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
    // Registered, it can only fail for want of memory. To go on without it would be to miss uses.
    while (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
      SPILLWAY_CHECK(errno == ENOMEM);
      Pause(kSpins);
    }
  }
  for (const Slot& slot : slots) {
    const uint64_t seen = slot.count_.load(std::memory_order_acquire);
    if (seen % 2 == 0) continue;
    for (int spins = 0; slot.count_.load(std::memory_order_acquire) == seen; ++spins) Pause(spins);
  }
}

}  // namespace spillway::allocator
