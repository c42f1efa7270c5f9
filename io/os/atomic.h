// Atomics of the protocols without a lock, by a name of our own, so that the simulation (tests/simulation) can put a
// switch and a store buffer behind each access. Plain sums that nobody decides on may stay std::atomic.

#ifndef SPILLWAY_IO_OS_ATOMIC_H_
#define SPILLWAY_IO_OS_ATOMIC_H_

#include <atomic>

namespace spillway::os {

template <typename T>
using Atomic = std::atomic<T>;

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_ATOMIC_H_
