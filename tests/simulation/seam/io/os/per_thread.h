// The simulation's form of io/os/per_thread.h: state of one task. All tasks run on one thread, so
// thread_local would be shared by them.

#ifndef SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_PER_THREAD_H_
#define SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_PER_THREAD_H_

#include "tests/simulation/scheduler.h"

namespace spillway::os {

template <typename T>
inline T& PerThread() {
  static const char type = 0;
  return *static_cast<T*>(simulation::scheduler().PerTask(
      &type, []() -> void* { return new T(); }, [](void* state) { delete static_cast<T*>(state); }));
}

}  // namespace spillway::os

#endif  // SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_PER_THREAD_H_
