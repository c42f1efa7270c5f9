// Barriers, and the pause of a thread that spins. With an asymmetric barrier one side pays for the ordering
// of both. Either the thread that issues HeavyBarrier sees every store that another thread made before its
// LightBarrier, or the other thread, after its LightBarrier, sees what was stored before the heavy one.
// Read-side sections use the light side on launch threads and evictions the heavy side on the device's
// thread. Any thread. A kernel may have no heavy side, or no memory for it: the caller learns it.

#ifndef SPILLWAY_IO_OS_BARRIER_H_
#define SPILLWAY_IO_OS_BARRIER_H_

#include <atomic>

namespace spillway::os {

// To be called before the first HeavyBarrier. False when the kernel has none: both sides must then use
// FullFence.
bool RegisterAsymmetricBarrier();
// False when the kernel had no memory for it: nothing is ordered, and the caller tries again.
bool HeavyBarrier();
// Costs no instruction: restrains the compiler alone.
inline void LightBarrier() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Orders both sides without the asymmetric barrier. ThreadSanitizer does not model a fence, about which gcc
// warns: nothing that ThreadSanitizer checks may depend on it.
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

// The pause after the `spins`-th look at something that another thread is about to change: the processor's
// pause for about 10 us in all, then sleeps of 20 us. It is not sched_yield, which gives a whole time slice
// away on a busy machine.
void SpinPause(int spins);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_BARRIER_H_
