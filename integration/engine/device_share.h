// DeviceShare: this job's share of one device that jobs of a user share (SPILLWAY_SHARE=gpu). A job takes
// what its blocks need as they come, as far as the others leave it, and keeps that. It gives up the memory
// that its blocks have left while it is paused. Once it has been idle for a while and another job wants more,
// its blocks leave the GPU, and it gives their memory up. Its next launch then waits until the job has a
// share again. The jobs see each other through io::NodeShare.
//
// GpuSharing owns it and polls it on its thread; the residency asks on threads of the job
// (allocator::GpuShare).

#ifndef SPILLWAY_INTEGRATION_ENGINE_DEVICE_SHARE_H_
#define SPILLWAY_INTEGRATION_ENGINE_DEVICE_SHARE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "allocator/residency/residency.h"
#include "allocator/residency/state/gpu_share.h"
#include "allocator/residency/state/pause.h"
#include "io/os/clock.h"
#include "io/os/sync.h"
#include "io/os/wait.h"
#include "io/store/node_share.h"

namespace spillway::integration {

class DeviceShare final : public allocator::GpuShare {
 public:
  struct Options {
    std::vector<std::string> directories;  // where the jobs see each other (io::NodeShare)
    std::string account;                   // of the jobs that share
    uint64_t total_bytes = 0;              // of the device, for all jobs together
    uint64_t reserve_bytes = 0;            // of the device, beyond that: for processes that are no jobs
    std::chrono::nanoseconds idle{};       // time without a launch after which the job is idle; 0: never
    std::function<std::optional<uint64_t>()>
        free_bytes;  // device memory that is free now; empty: the driver does not answer
    os::WaitList* waits = nullptr;
    const os::Clock* clock = os::Clock::System();  // for idleness
    // Called when the share was given up, as a pause that began then (ns of the system's steady clock), and
    // when it is back. The share's lock is held. Null: nobody wants to know.
    std::function<void(int64_t began, const allocator::PauseStats& stats)> on_left;
    std::function<void()> on_back;
  };
  explicit DeviceShare(Options options);
  DeviceShare(const DeviceShare&) = delete;
  DeviceShare& operator=(const DeviceShare&) = delete;

  // Must be called before the first block. `residency` must stay as long as this object is used.
  void Bind(allocator::Residency* residency) { residency_.store(residency); }

  void Grow(uint64_t bytes) override;
  void Shrink() override;
  absl::Status Await(uint64_t bytes, absl::FunctionRef<std::string()> name) override;
  uint64_t growable_bytes() const override { return growable_.load(std::memory_order_relaxed); }

  // Looks at the job and at the others, and takes or gives. May take as long as a pause does. For the owner's
  // thread.
  void Poll();

  // Ends all waits; the share is not given up any more. Thread-safe.
  void Stop() { stopped_.store(true); }
  // Called in a forked child, on its only thread: the parent stays registered.
  void AbandonAfterFork();

 private:
  enum class State { kActive, kLeaving, kAway };  // kLeaving: the owner's thread is pausing the job

  // Returns what this job may have by now, its own share included. `all_jobs` gets what it could have if the
  // other jobs had nothing.
  uint64_t MostLocked(const allocator::ShareNeed& need, uint64_t* all_jobs = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Raises the share to `bytes`, rounded up if there is more. Returns false if the others have taken it.
  bool RaiseLocked(uint64_t bytes, uint64_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LowerLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lowers the share to what the job may have at all, and, while blocks are paused, to what it has or wants.
  void ShrinkLocked(const allocator::ShareNeed& need) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Publishes to the others how much is wanted beyond the share.
  void PublishWantedLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records that the job is active: it is neither idle nor away any more.
  void RecordActiveLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The bytes that a waiting thread lacks.
  struct Shortage {
    uint64_t least = 0;         // the bytes that it waits for; 0: nothing is lacking
    uint64_t all_jobs = 0;      // that the jobs could have; below `least`: none of them can make way
    absl::Status cannot_leave;  // why this job itself could not make way since it began to wait
  };
  Shortage TryAwait(allocator::Residency* residency, uint64_t bytes);
  void GiveUp(allocator::Residency* residency);

  const Options options_;
  const uint64_t increment_bytes_;
  std::atomic<allocator::Residency*> residency_{nullptr};
  std::atomic<uint64_t> growable_{0};
  std::atomic<bool> stopped_{false};

  os::Mutex mu_{os::LockRank::kGpuShare};
  io::NodeShare shares_ ABSL_GUARDED_BY(mu_);  // the share of each job
  io::NodeShare wanted_ ABSL_GUARDED_BY(mu_);  // what each job wants besides
  uint64_t share_ ABSL_GUARDED_BY(mu_) = 0;
  State state_ ABSL_GUARDED_BY(mu_) = State::kActive;
  uint64_t launches_ ABSL_GUARDED_BY(mu_) = 0;      // at the last poll
  int64_t active_at_ ABSL_GUARDED_BY(mu_) = 0;      // ns of the clock
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;            // threads in Await
  uint64_t awaited_ ABSL_GUARDED_BY(mu_) = 0;       // the most that one of them needs
  absl::Status cannot_leave_ ABSL_GUARDED_BY(mu_);  // why GiveUp failed while they wait
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DEVICE_SHARE_H_
