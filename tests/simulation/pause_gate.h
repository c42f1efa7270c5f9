// PauseGateOfJob: keeps launches of a job that is paused from outside, as integration/engine/job_pause does.
// It is closed before the blocks are paused and opened after they were resumed. Now and then a launch that
// waits is refused, as where a signal comes.

#ifndef SPILLWAY_TESTS_SIMULATION_PAUSE_GATE_H_
#define SPILLWAY_TESTS_SIMULATION_PAUSE_GATE_H_

#include <cstdint>
#include <string>

#include "allocator/driver/cuda_driver.h"
#include "allocator/residency/state/pause.h"
#include "io/os/sync.h"
#include "tests/simulation/random.h"

namespace spillway::simulation {

class PauseGateOfJob : public allocator::PauseGate {
 public:
  explicit PauseGateOfJob(Random* random) : random_(random) {}

  void Close() { Set(true); }
  void Open() { Set(false); }
  // One in so many launches that come here is refused; 0: none.
  void set_signal_one_in(uint32_t one_in) { signal_one_in_ = one_in; }
  uint64_t signals() const { return signals_; }

  absl::Status AwaitResume(absl::FunctionRef<std::string()> name, const os::Atomic<bool>&) override {
    static_cast<void>(name());
    if (signal_one_in_ != 0 && random_->OneIn(signal_one_in_)) {
      ++signals_;
      return allocator::IllegalState("a signal came");
    }
    // No time-out: whoever is forgotten here fails the run.
    const os::MutexLock lock(&mu_);
    while (closed_) changed_.Wait(&mu_);
    return absl::OkStatus();
  }

 private:
  void Set(bool closed) {
    const os::MutexLock lock(&mu_);
    closed_ = closed;
    if (!closed) changed_.NotifyAll();
  }

  Random* const random_;
  uint32_t signal_one_in_ = 0;
  uint64_t signals_ = 0;
  os::Mutex mu_{os::LockRank::kRegistry};
  os::CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_PAUSE_GATE_H_
