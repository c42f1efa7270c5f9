// The simulation's form of io/os/barrier.h. Stores of a task stay its own until they are drained (atomic.h):
// by the heavy barrier those of all tasks, by a fence the task's own. Before either another task may go on.

#ifndef SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_BARRIER_H_
#define SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_BARRIER_H_

#include "tests/simulation/scheduler.h"

namespace spillway::os {

// By the world's settings: a kernel with membarrier or one without.
bool RegisterAsymmetricBarrier();
// From now on all tasks see what every task has stored.
inline bool HeavyBarrier() {
  simulation::scheduler().SwitchPoint();
  simulation::scheduler().DrainAll();
  return true;
}
inline void LightBarrier() {}
inline void FullFence() {
  simulation::scheduler().SwitchPoint();
  simulation::scheduler().DrainMine();
}
inline void SpinPause(int) { simulation::scheduler().Spin(); }

}  // namespace spillway::os

#endif  // SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_BARRIER_H_
