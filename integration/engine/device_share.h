// DeviceShare: what of one device is this job's, where jobs of a user share it (SPILLWAY_SHARE=gpu). A job takes
// what its blocks need as they come, while the others leave it, and keeps that; it gives up what it no longer
// holds while it is paused, and what it holds once it has been idle for a while and another job wants more. Its
// next launch then waits until the job has a share again. The jobs see each other by io::NodeShare.
//
// GpuSharing owns it and polls it on its thread; the residency asks on threads of the job (allocator::GpuShare).

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
    std::string account;                   // of those that share
    uint64_t total_bytes = 0;              // of the device, for all jobs together
    uint64_t reserve_bytes = 0;            // of the device, beyond that: what others than jobs may take
    std::chrono::nanoseconds idle{};       // without a launch for so long the job is idle; 0: never
    std::function<std::optional<uint64_t>()>
        free_bytes;  // that the driver has now; empty: it does not answer
    os::WaitList* waits = nullptr;
    const os::Clock* clock = os::Clock::System();  // of idleness
    // The share was given up, as a pause that began then (ns of the system's steady clock); and is there again. Called with
    // the share's lock held. Null: nobody wants to know.
    std::function<void(int64_t began, const allocator::PauseStats& stats)> on_left;
    std::function<void()> on_back;
  };
  explicit DeviceShare(Options options);
  DeviceShare(const DeviceShare&) = delete;
  DeviceShare& operator=(const DeviceShare&) = delete;

  // Before the first block. `residency` stays as long as this object is used.
  void Bind(allocator::Residency* residency) { residency_.store(residency); }

  void Grow(uint64_t bytes) override;
  void Shrink() override;
  absl::Status Await(uint64_t bytes, absl::FunctionRef<std::string()> name) override;
  uint64_t growable_bytes() const override { return growable_.load(std::memory_order_relaxed); }

  // Looks at the job and at the others, and takes or gives. May take as long as a pause does. The owner's thread.
  void Poll();

  // No wait goes on, and nothing is given up any more. Any thread.
  void Stop() { stopped_.store(true); }
  // In a forked child, on its only thread: the parent stays entered.
  void AbandonAfterFork();

 private:
  enum class State { kActive, kLeaving, kAway };  // kLeaving: while the owner's thread pauses

  // What this job may have by now, what it has included. `all_jobs`: could have if the other jobs had nothing.
  uint64_t MostLocked(const allocator::ShareNeed& need, uint64_t* all_jobs = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has the share be `bytes`, rounded up where there is more. False: the others have taken it.
  bool RaiseLocked(uint64_t bytes, uint64_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LowerLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // To what the job has or wants, where something is paused, and to what it may have at all.
  void ShrinkLocked(const allocator::ShareNeed& need) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the others how much is wanted beyond the share.
  void TellWantedLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Something of the job's goes on: it is not idle, nor away any more.
  void NoteActiveLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a thread that waits lacks, in bytes.
  struct Lack {
    uint64_t least = 0;         // that is waited for; 0: nothing is lacking
    uint64_t all_jobs = 0;      // that the jobs could have; less than `least`: none of them can make way
    absl::Status cannot_leave;  // why this job itself could not make way, since it waits
  };
  Lack TryAwait(allocator::Residency* residency, uint64_t bytes);
  void GiveUp(allocator::Residency* residency);

  const Options options_;
  const uint64_t increment_bytes_;
  std::atomic<allocator::Residency*> residency_{nullptr};
  std::atomic<uint64_t> growable_{0};
  std::atomic<bool> stopped_{false};

  os::Mutex mu_{os::LockRank::kGpuShare};
  io::NodeShare shares_ ABSL_GUARDED_BY(mu_);  // what each has
  io::NodeShare wanted_ ABSL_GUARDED_BY(mu_);  // what each wants besides
  uint64_t share_ ABSL_GUARDED_BY(mu_) = 0;
  State state_ ABSL_GUARDED_BY(mu_) = State::kActive;
  uint64_t launches_ ABSL_GUARDED_BY(mu_) = 0;      // when it was last polled
  int64_t active_at_ ABSL_GUARDED_BY(mu_) = 0;      // ns of the clock
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;            // threads in Await, of which
  uint64_t awaited_ ABSL_GUARDED_BY(mu_) = 0;       // some want so much
  absl::Status cannot_leave_ ABSL_GUARDED_BY(mu_);  // why GiveUp failed while they wait
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DEVICE_SHARE_H_
