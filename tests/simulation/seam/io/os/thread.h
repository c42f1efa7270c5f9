// The simulation's form of io/os/thread.h: a thread is a task. Starting one does not fail here, and a sleep
// costs no time but the simulation's.

#ifndef SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_THREAD_H_
#define SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_THREAD_H_

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tests/simulation/scheduler.h"

namespace spillway::os {

class Thread {
 public:
  Thread() = default;
  explicit Thread(simulation::Task* task) : task_(task) {}
  Thread(Thread&& other) noexcept : task_(std::exchange(other.task_, nullptr)) {}
  Thread& operator=(Thread&& other) noexcept {
    task_ = std::exchange(other.task_, nullptr);
    return *this;
  }
  bool joinable() const { return task_ != nullptr; }
  void join() { simulation::scheduler().Join(std::exchange(task_, nullptr)); }
  void detach() { task_ = nullptr; }

 private:
  simulation::Task* task_ = nullptr;
};

using ThreadId = int;

inline absl::StatusOr<Thread> StartThread(const std::string& name, std::function<void()> body) {
  return Thread(simulation::scheduler().Start(name, simulation::TaskKind::kBackground, std::move(body)));
}
inline ThreadId ThisThreadId() { return simulation::scheduler().self()->id; }
inline void SleepFor(std::chrono::nanoseconds duration) {
  simulation::scheduler().SleepUntil(simulation::scheduler().now() + duration.count());
}
inline void SetTimerSlack(std::chrono::nanoseconds) {}

}  // namespace spillway::os

#endif  // SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_THREAD_H_
