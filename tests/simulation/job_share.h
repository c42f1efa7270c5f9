// ShareOfJob: what of the device is the job's, in a world whose device jobs share, as integration/engine's
// DeviceShare does it. The others have some of it, and leave it while the job waits. PlayIdle in thread_pauses.h
// has the job give its share up now and then.

#ifndef SPILLWAY_TESTS_SIMULATION_JOB_SHARE_H_
#define SPILLWAY_TESTS_SIMULATION_JOB_SHARE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "allocator/residency/residency.h"
#include "allocator/residency/state/gpu_share.h"
#include "io/os/sync.h"
#include "tests/simulation/random.h"

namespace spillway::simulation {

class ShareOfJob : public allocator::GpuShare {
 public:
  // `total`: of the device, in bytes.
  ShareOfJob(Random* random, uint64_t total) : random_(random), total_(total) {}
  void Bind(allocator::Residency* residency) { residency_ = residency; }
  // Resumes what idleness has paused.
  void set_resume(std::function<void()> resume) { resume_ = std::move(resume); }

  void Grow(uint64_t bytes) override {
    const os::MutexLock lock(&mu_);
    GrowLocked(bytes);
  }
  void Shrink() override {
    residency_->PrepareShare(residency_->GetShareNeed().taken_bytes);
    const os::MutexLock lock(&mu_);
    const allocator::ShareNeed need = residency_->GetShareNeed();
    ShrinkLocked(need.paused_bytes == 0 ? share_ : std::max(need.taken_bytes, need.wanted_bytes));
  }
  absl::Status Await(uint64_t bytes, absl::FunctionRef<std::string()> name) override {
    static_cast<void>(name());
    {
      const os::MutexLock lock(&mu_);
      const allocator::ShareNeed need = residency_->GetShareNeed();
      if (!need.serving) return absl::OkStatus();
      others_ = 0;
      GrowLocked(std::max({bytes, need.least_bytes, need.wanted_bytes + need.away_bytes}));
      away_ = false;
    }
    if (resume_) resume_();
    return absl::OkStatus();
  }
  uint64_t growable_bytes() const override { return 0; }

  // The owner's thread, around a pause for idleness: the others take something meanwhile.
  void Leave() {
    const os::MutexLock lock(&mu_);
    away_ = true;
    others_ = total_ / 64 * random_->Below(64);
  }
  // False: the job has come back during the pause.
  bool Left() {
    residency_->PrepareShare(residency_->GetShareNeed().taken_bytes);
    const os::MutexLock lock(&mu_);
    const allocator::ShareNeed need = residency_->GetShareNeed();
    if (away_) ShrinkLocked(need.taken_bytes);
    return away_;
  }

 private:
  void GrowLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint64_t share = std::max(share_, std::min(bytes, total_ - others_));
    if (share > share_) residency_->SetShare(share_ = share);
  }
  void ShrinkLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (bytes < share_) share_ = residency_->SetShare(bytes);
  }

  Random* const random_;
  const uint64_t total_;
  allocator::Residency* residency_ = nullptr;
  std::function<void()> resume_;
  os::Mutex mu_{os::LockRank::kGpuShare};
  uint64_t share_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t others_ ABSL_GUARDED_BY(mu_) = 0;
  bool away_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_JOB_SHARE_H_
