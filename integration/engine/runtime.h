// Runtime builds the engine's objects, and takes them out of service at exit and in forked children.
// engine.cc creates it at the first cuInit; the hooks are installed then. The rest is created when the first
// block is asked for: the parts that devices share (Tiers), the reports of the job (JobReports), and a
// residency and a predictor for each device (Devices). The C ABI finds everything through its one instance,
// on any thread. Create fails if the driver lacks what is needed. A request for a device that cannot be
// served returns the reason, each time again.

#ifndef SPILLWAY_INTEGRATION_ENGINE_RUNTIME_H_
#define SPILLWAY_INTEGRATION_ENGINE_RUNTIME_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/device_hash.h"
#include "allocator/driver/refusals.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "integration/engine/audit_setup.h"
#include "integration/engine/devices.h"
#include "integration/engine/eviction_switch.h"
#include "integration/engine/gpu_sharing.h"
#include "integration/engine/job_pause.h"
#include "integration/engine/job_profile.h"
#include "integration/engine/job_reports.h"
#include "integration/engine/sizing.h"
#include "integration/engine/tiers.h"
#include "integration/hooks/hook_context.h"
#include "integration/preload/shim_abi.h"
#include "integration/report/metrics.h"
#include "integration/settings/settings.h"
#include "io/os/sync.h"
#include "io/os/wait.h"

namespace spillway::integration {

class Runtime {
 public:
  // Resolves the driver's entry points and installs the hooks, which let everything pass until there is a
  // block. Takes no device memory, starts no thread. Fails if the driver lacks what is needed.
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(const spillway_shim* shim, Settings settings,
                                                         DenyList deny_list);

  // Get returns the instance that the C ABI and the exit handler use; null before the engine is open. It is
  // never destroyed.
  static Runtime* Get();
  static void Set(Runtime* runtime);

  // Returns the device's residency, which the first call creates. kInvalidArgument: a setting of the user
  // does not work. kFailedPrecondition: the caller must do without us, since exit or fork has begun, the
  // device is beyond allocator::kMaxDevices, or the device or the driver lacks something. A failure is kept
  // and returned again. Thread-safe; takes no lock once the device is there.
  absl::StatusOr<allocator::Residency*> Device(int device);

  // Returns the device's residency if it has one and the engine is alive. Thread-safe; takes no lock.
  allocator::Residency* Existing(int device) const;
  // Returns the residency of the device whose address space contains `address`; null if there is none.
  allocator::Residency* Owner(const void* address) const;
  // Returns whether `address` lies in the address space of a device, whether or not a block is there.
  bool Owns(const void* address) const { return tiers_.DeviceOf(address) >= 0; }

  // EvictionSwitch::Followable: after an error, no block may be handed out.
  absl::Status Followable() const { return evictions_.Followable(); }
  // Returns a refused allocation with its causes: the call that ended evictions, and the largest blocks.
  // Thread-safe.
  absl::Status Explain(int device, const absl::Status& refused) const;
  // Sets the application's own limit on the device's budget, in bytes, from now on or from its first block
  // on; UINT64_MAX: none. kFailedPrecondition as for Device. Thread-safe; waits while a device starts.
  absl::Status SetCap(int device, uint64_t bytes);
  // Sets a limit from a user's text: a size as SPILLWAY_GPU_MEMORY takes it, or "none". After an error
  // nothing changes: kInvalidArgument for other texts and for more than the device had for the job,
  // kResourceExhausted if blocks that must stay need more. Blocks are still leaving when it returns.
  absl::Status SetGpuMemory(int device, const std::string& size);
  // Returns the object that pauses and resumes the job, on all devices in service.
  JobPause* pause() { return &pause_; }
  // Returns the bytes of the device's memory, used or not. Asks the driver, which must have been initialized.
  absl::StatusOr<uint64_t> DeviceBytes(int device) const;

  // Records whose allocator is installed: "PyTorch 2.11", for the line at the first block. The first name
  // counts. Thread-safe; takes no lock.
  void RecordFramework(const std::string& name) { reports_.RecordFramework(name); }
  // Records that the job has ended an iteration, on every device. Thread-safe.
  void MarkIteration() const;
  // Returns the metrics of this moment, as they are reported; empty before the first block. Thread-safe.
  Metrics CurrentMetrics() const { return reports_.Collect(); }
  allocator::Refusals* refusals() { return &refusals_; }
  const allocator::Refusals* refusals() const { return &refusals_; }

  // Ends predictors, transfers, threads and reports within 2 s, whatever a driver or a disk does. Anything
  // that does not end in time is left to itself. Frees do nothing afterwards. Called by the exit handler; a
  // second call does nothing.
  void Shutdown();
  // Called in a forked child, on its only thread: nothing of the parent's is used or released.
  void AbandonAfterFork();
  bool dead() const { return dead_.load(); }

 private:
  Runtime(const spillway_shim* shim, Settings settings, std::unique_ptr<const allocator::CudaDriver> driver,
          std::string missing_hooks, DenyList deny_list);

  // The memory of a device: the part that we may use, and all of it.
  struct DeviceMemory {
    DeviceBudget budget;
    uint64_t total_bytes = 0;
    uint64_t jobs_bytes = 0;  // of a shared device, for all jobs together
  };

  absl::StatusOr<allocator::Residency*> StartDeviceLocked(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<CUcontext> OpenDevice(int device) const;
  absl::Status StartSharedLocked(int device, CUcontext context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<DeviceMemory> MemoryOf(int device, CUcontext context) const;
  allocator::ResidencyParts PartsOf(CUcontext context);
  std::unique_ptr<Predictor> MakePredictor(int device, CUcontext context, bool evict);
  bool LockForEnd() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mu_);

  // The hooks call this when they meet a call that they cannot follow. Thread-safe.
  static void SwitchEvictionOff(const char* reason);
  // Called when a wrapped name was given out, or called, in a form that no wrapper knows. Thread-safe.
  static void OnUnwrapped(const char* name, int version);
  // Answers the shim's question at a call of a function that no table has: one of SPILLWAY_NEWER_*.
  // Thread-safe.
  static int OnNewerCall(const char* name);

  // Constant after Create.
  const Settings settings_;
  const std::unique_ptr<const allocator::CudaDriver> driver_;

  // Internally synchronized, or constant once the first device has been published.
  os::WaitList waits_;  // of the process
  Devices devices_;
  Tiers tiers_;
  EvictionSwitch evictions_;
  JobPause pause_;
  GpuSharing sharing_;
  JobProfile profile_;
  JobReports reports_;
  AuditSetup audit_;
  std::unique_ptr<BlockTrust> trust_;  // null unless SPILLWAY_TRUST=strict
  allocator::PtxHashCode hash_code_;   // without state
  allocator::Refusals refusals_;
  HookContext hook_context_;

  std::atomic<bool> dead_{false};  // exit or fork has begun: refuse and ignore

  os::Mutex mu_{os::LockRank::kRuntime};  // held while a device starts, and at the end
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  std::array<absl::Status, allocator::kMaxDevices> failures_ ABSL_GUARDED_BY(mu_);
  std::array<uint64_t, allocator::kMaxDevices> caps_ ABSL_GUARDED_BY(mu_);  // of SetCap
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_RUNTIME_H_
