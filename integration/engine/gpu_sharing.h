// GpuSharing shares the job's devices with other jobs of its user (SPILLWAY_SHARE=gpu). It creates a
// DeviceShare for each, and polls them on a thread of its own (`spill-share`). Runtime has one. If the
// setting is off, no device is shared, and there is no thread.

#ifndef SPILLWAY_INTEGRATION_ENGINE_GPU_SHARING_H_
#define SPILLWAY_INTEGRATION_ENGINE_GPU_SHARING_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/memory/address_map.h"
#include "integration/engine/device_share.h"
#include "integration/engine/job_pause.h"
#include "integration/settings/settings.h"
#include "io/os/joinable_thread.h"
#include "io/os/wait.h"

namespace spillway::integration {

class GpuSharing {
 public:
  // All of them must outlive this object.
  GpuSharing(const Settings* settings, const allocator::CudaDriver* driver, os::WaitList* waits,
             JobPause* pause);
  ~GpuSharing() { Stop(); }
  GpuSharing(const GpuSharing&) = delete;
  GpuSharing& operator=(const GpuSharing&) = delete;

  // Returns the share of a device that is about to be served, with its context; null if it is not shared.
  // Returns an error if the device has no name by which jobs could meet, or no thread can be started. One
  // thread at a time.
  absl::StatusOr<DeviceShare*> AddDevice(int device, CUcontext context, uint64_t total_bytes,
                                         uint64_t reserve_bytes);

  // Ends the thread within 0.1 s, or leaves it to itself.
  void Stop();
  // Called in a forked child, on its only thread.
  void AbandonAfterFork();

 private:
  // Calls visit(DeviceShare*) for each shared device.
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const std::atomic<DeviceShare*>& place : shares_) {
      if (DeviceShare* const share = place.load(std::memory_order_acquire)) visit(share);
    }
  }
  // The thread's loop.
  void Loop();

  const Settings* const settings_;
  const allocator::CudaDriver* const driver_;
  os::WaitList* const waits_;
  JobPause* const pause_;  // records the times for which the job was idle
  std::array<std::atomic<DeviceShare*>, allocator::kMaxDevices>
      shares_{};  // never destroyed: waits end in them
  os::Mutex mu_{os::LockRank::kRegistry};
  os::CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  os::JoinableThread thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_GPU_SHARING_H_
