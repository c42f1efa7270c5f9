// Barriers, and the pause of a thread that spins. An asymmetric barrier makes one side pay for the ordering
// of both. Either the thread that issues HeavyBarrier sees every store that another thread made before its
// LightBarrier, or the other thread, after its LightBarrier, sees everything that was stored before the heavy
// barrier. Read-side sections use the light side on launch threads, and evictions use the heavy side on the
// device's thread. Any thread. A kernel may have no heavy side, or no memory for it; the result tells the
// caller.

#ifndef SPILLWAY_IO_OS_BARRIER_H_
#define SPILLWAY_IO_OS_BARRIER_H_

#include <atomic>

namespace spillway::os {

// Must be called before the first HeavyBarrier. Returns false when the kernel has none: both sides must then
// use FullFence.
bool RegisterAsymmetricBarrier();
// Returns false when the kernel had no memory for it: nothing is ordered, and the caller tries again.
bool HeavyBarrier();
// Costs no instruction, as it restrains the compiler alone.
inline void LightBarrier() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Orders both sides without the asymmetric barrier. ThreadSanitizer does not model a fence, and gcc warns
// about it: nothing that ThreadSanitizer checks may depend on it.
inline void FullFence() {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

// The pause after the `spins`-th look at a value that another thread is about to change: the processor's
// pause for about 10 us in all, then sleeps of 20 us. It is not sched_yield, which gives away a whole time
// slice on a busy machine.
void SpinPause(int spins);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_BARRIER_H_
