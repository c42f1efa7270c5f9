// Runtime: builds the engine's objects, and takes them out of service at exit and in forked children.
// engine.cc creates it at the first cuInit; the hooks are installed then. The rest (address map, host pool,
// spill store, reporter, a residency and a predictor for each device) is made when the first block is asked
// for. The C ABI finds everything through its one instance, on any thread.

#ifndef SPILLWAY_INTEGRATION_ENGINE_RUNTIME_H_
#define SPILLWAY_INTEGRATION_ENGINE_RUNTIME_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/device_hash.h"
#include "allocator/driver/refusals.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "allocator/tier/host_pool.h"
#include "allocator/tier/shared_capacity.h"
#include "integration/engine/audit_setup.h"
#include "integration/engine/report.h"
#include "integration/engine/reporter.h"
#include "integration/engine/run_report.h"
#include "integration/hooks/hook_context.h"
#include "integration/prediction/predictor.h"
#include "integration/preload/shim_abi.h"
#include "integration/settings/settings.h"
#include "io/os/sync.h"
#include "io/os/wait.h"
#include "io/spill_store.h"

namespace spillway::integration {

class Runtime : private RunSource {
 public:
  // Resolves the driver's entry points and installs the hooks, which let everything pass until there is a
  // block. Takes no device memory, starts no thread. Fails when the driver lacks what is needed.
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(const spillway_shim* shim, Settings settings,
                                                         DenyList deny_list);

  // The instance that the C ABI and the exit handler use; null before the engine is open. Never destroyed.
  static Runtime* Get();
  static void Set(Runtime* runtime);

  // The device's residency, made at the first call. kInvalidArgument when a setting of the user does not
  // work. kFailedPrecondition when the caller must do without us: exit or fork has begun, the device is
  // beyond allocator::kMaxDevices, or the device or the driver lacks something. A failure is kept and
  // returned again. Any thread; no lock once the device is there.
  absl::StatusOr<allocator::Residency*> Device(int device);

  // An error when launches or copies of this process go unseen: then no block may be handed out.
  absl::Status Followable() const;
  // A refusal of memory, with what ended evictions where something has. Any thread.
  absl::Status WithCause(const absl::Status& refusal) const;

  // The device's residency if it has one and the engine is alive. Any thread, no lock.
  allocator::Residency* Existing(int device) const;
  // The residency of the device whose address space holds `address`; null when none has it.
  allocator::Residency* Owner(const void* address) const;
  bool Owns(const void* address) const;

  // Bytes of the device's memory, used or not. Asks the driver, which must have been initialised.
  absl::StatusOr<uint64_t> DeviceBytes(int device) const;
  // Whose allocator is installed: "PyTorch 2.11", for the line at the first block. The first name counts. Any
  // thread; no lock.
  void NoteFramework(const std::string& name);
  // `refused`, an allocation's, with the largest live blocks of the device and their last kernels.
  absl::Status Explain(int device, const absl::Status& refused) const;
  // The job's iteration ends here, on every device. Any thread.
  void MarkIteration();

  // Ends predictors, transfers, threads and reports within 2 s, whatever a driver or a disk does. What does
  // not end in time is left to itself. Frees do nothing afterwards. Called by the exit handler; a second call
  // does nothing.
  void Shutdown();
  // In a forked child, on its only thread: nothing of the parent's is used or released.
  void AbandonAfterFork();

  // The figures of this moment, as they are reported; empty before the first block. Any thread.
  Figures CurrentFigures() const;
  bool dead() const { return dead_.load(); }
  allocator::Refusals* refusals() { return &refusals_; }
  const allocator::Refusals* refusals() const { return &refusals_; }

 private:
  Runtime(const spillway_shim* shim, Settings settings);

  absl::Status StartLocked(int device, CUcontext context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportServing(int device, const allocator::ResidencyOptions& options) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  AdviceFacts FactsForAdvice() const;
  void StartReports() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  RunFacts FactsForReport() const;
  std::string WordsOfDevice(const char* function, int device) const;
  DeviceFacts FactsOfDevice(int device, uint64_t budget_bytes) const;
  std::optional<DeviceLook> Look(int device) const override;
  std::vector<allocator::LargeBlock> LargestBlocks(int device, size_t most) const override;
  std::vector<io::DirectoryStats> Directories() const override;
  std::string NameOfLaunch(int device, policy::LaunchIndex index) const override;
  std::string KernelOf(uint64_t tag) const override;
  void AskForIteration(int device) const override;
  std::shared_ptr<const Predictor::Followed> LastIteration(int device) const override;
  absl::Status StartDiskLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StartHostLocked(CUcontext context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ReserveAddressesLocked(uint64_t device_total) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<allocator::Residency*> StartDeviceLocked(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  allocator::ResidencyParts PartsOf(CUcontext context);
  std::unique_ptr<Predictor> MakePredictor(int device, CUcontext context, bool evict);
  absl::StatusOr<uint64_t> BudgetOf(int device, CUcontext context);
  Figures CollectFigures() const;
  ObservedIteration ObservedAt(size_t place, const allocator::ResidencyStats& stats) const;
  bool LockForEnd() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mu_);
  void WriteTraces() const;
  bool MayEvictLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void SwitchEvictionOff(const char* reason);
  // Whether there is a device with blocks of ours, or about to have them.
  bool InUse() const;
  // Brings everything back on each device, which then keeps it; an error when it does not fit.
  absl::Status StopEvicting();
  // The same for good, `reason` being what cannot be followed; the first time it is reported.
  absl::Status EndEvictions(const char* reason);
  // A wrapped name was given out, or called, in a form that no wrapper knows. Any thread.
  static void OnUnwrapped(const char* name, int version);
  // The shim's question at a call of a function that no table has: one of SPILLWAY_NEWER_*. Any thread.
  static int OnNewerCall(const char* name);

  // Constant after Create.
  const spillway_shim* const shim_;
  const Settings settings_;
  std::unique_ptr<const allocator::CudaDriver> driver_;
  std::string missing_hooks_;
  std::unique_ptr<AuditSetup> audit_;
  std::unique_ptr<BlockTrust> trust_;  // SPILLWAY_TRUST=strict, else null
  allocator::PtxHashCode hash_code_;   // without state
  allocator::Refusals refusals_;       // internally synchronised
  os::WaitList waits_;                 // of the process

  // Written once under mu_, released by the store of a residency below or by addresses_ready_.
  std::unique_ptr<allocator::AddressMap> addresses_;
  std::unique_ptr<io::NodeShare> host_share_;  // used by host_ alone, but for its end in a forked child
  std::unique_ptr<allocator::HostPool> host_;
  uint64_t host_cap_bytes_ = 0;  // staging included
  std::vector<std::string> disk_paths_;
  std::unique_ptr<io::SpillStore> disk_;
  std::unique_ptr<allocator::SharedCapacity> capacity_;  // what all devices may promise off the GPU
  std::unique_ptr<RunReport> report_;                    // null: SPILLWAY_REPORT does not ask for one
  std::unique_ptr<Reporter> reporter_;
  std::string trace_path_;  // empty: no trace is wanted, or there was no block
  std::array<std::unique_ptr<Predictor>, allocator::kMaxDevices> predictors_;
  HookContext hook_context_;
  std::atomic<const allocator::AddressMap*> addresses_ready_{nullptr};  // pairs with Owns and Owner
  std::array<std::atomic<allocator::Residency*>, allocator::kMaxDevices>
      residencies_{};                                                        // pairs with Existing
  std::array<std::atomic<uint64_t>, allocator::kMaxDevices> total_bytes_{};  // of the devices, for shares

  std::atomic<const std::string*> framework_{nullptr};  // never freed

  std::atomic<bool> dead_{false};          // exit or fork has begun: refuse and ignore
  std::atomic<bool> eviction_off_{false};  // a call was met that cannot be followed
  std::string ended_by_;                   // that call; written once, before ended_
  std::atomic<bool> ended_{false};         // pairs with CollectFigures

  mutable os::Mutex mu_{os::LockRank::kRuntime};
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  std::array<absl::Status, allocator::kMaxDevices> failures_ ABSL_GUARDED_BY(mu_);
  std::array<std::unique_ptr<allocator::Residency>, allocator::kMaxDevices> owned_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_RUNTIME_H_
