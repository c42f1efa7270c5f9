// State of one thread: PerThread<T>() is the calling thread's T, created at its first use, one for each type.
// A type without constructor and destructor costs the same as a plain thread_local, and may be read until the
// thread's end. The name is our own so that the simulation (tests/simulation) can give each of its tasks its
// own state. Nothing fails.

#ifndef SPILLWAY_IO_OS_PER_THREAD_H_
#define SPILLWAY_IO_OS_PER_THREAD_H_

namespace spillway::os {

template <typename T>
inline T& PerThread() {
  static thread_local T state;
  return state;
}

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_PER_THREAD_H_
