// Atomics of the lock-free protocols. The name is our own so that the simulation (tests/simulation) can put a
// task switch and a store buffer behind each access. Plain counters on which no decision depends may stay
// std::atomic. Each atomic's declaration names the store or load with which it pairs. Any thread; nothing
// fails.

#ifndef SPILLWAY_IO_OS_ATOMIC_H_
#define SPILLWAY_IO_OS_ATOMIC_H_

#include <atomic>

namespace spillway::os {

template <typename T>
using Atomic = std::atomic<T>;

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_ATOMIC_H_
