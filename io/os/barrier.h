// Barriers, and the pause of a thread that spins. An asymmetric barrier lets one side pay for the ordering of both: who
// issues HeavyBarrier sees every store that another thread made before its LightBarrier, or that thread sees, behind its
// LightBarrier, what was stored before the heavy one.

#ifndef SPILLWAY_IO_OS_BARRIER_H_
#define SPILLWAY_IO_OS_BARRIER_H_

#include <atomic>

namespace spillway::os {

// Before the first HeavyBarrier; false when the kernel has none: both sides must then use FullFence.
bool RegisterAsymmetricBarrier();
// False when the kernel had no memory for it: nothing is seen yet, and it is to be tried again.
bool HeavyBarrier();
// Costs no instruction: holds the compiler alone.
inline void LightBarrier() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// ThreadSanitizer does not model it and gcc warns: nothing that it checks may depend on it.
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

// The `spins`-th look at something that another thread is about to change: for about 10 us the processor's pause, then
// naps of 20 us. Not sched_yield: on a busy machine that gives a whole time slice away.
void SpinPause(int spins);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_BARRIER_H_
