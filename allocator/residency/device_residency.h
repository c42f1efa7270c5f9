// DeviceResidency: a device's residency without audit. It makes the parts, gives each what it works with, and answers the
// application's calls: allocation by Allocations, launches by LaunchGate; holds, streams, reports and both ends of life
// here. What a call may do is said at Residency.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_RESIDENCY_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_RESIDENCY_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/driver/device_hash.h"
#include "allocator/driver/refusals.h"
#include "allocator/residency/allocations.h"
#include "allocator/residency/device_thread.h"
#include "allocator/residency/launch_gate.h"
#include "allocator/residency/plan/plan_runner.h"
#include "allocator/residency/residency.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/reclaimer.h"
#include "allocator/residency/transfer/write_sampler.h"

namespace spillway::allocator {

class DeviceResidency : public Residency {
 public:
  DeviceResidency(const ResidencyOptions& options, const ResidencyParts& parts);
  ~DeviceResidency() override;
  absl::Status Start();

  absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes, StreamRef stream) override;
  absl::Status Free(CUdeviceptr address) override {
    return core_->closed.load() ? absl::OkStatus() : allocations_->Free(address);
  }
  absl::Status RecordStream(CUdeviceptr address, CUstream stream) override {
    return allocations_->RecordStream(address, stream);
  }
  absl::Status EmptyCache() override { return allocations_->EmptyCache(); }
  absl::StatusOr<Range> FindRange(CUdeviceptr address) const override {
    return allocations_->FindRange(address);
  }

  CUresult Run(const AccessSet& set, StreamRef stream, uint64_t tag,
               absl::FunctionRef<CUresult()> launch) override;
  CUresult RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                     absl::FunctionRef<CUresult()> launch) override;
  CUresult RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                          absl::FunctionRef<CUresult()> launch) override;
  using Residency::Hold;
  absl::Status Hold(const AccessSet& set, HoldReason reason, std::vector<HeldBlock>* held) override;
  void EndHold(const std::vector<HeldBlock>& held, HoldReason reason, const HiddenUsers& users) override;
  void NoteHiddenUse(const std::vector<HeldBlock>& held, const HiddenUsers& users) override;

  void OnStreamDestroy(CUstream stream) override;
  void OnCaptureBegin(CUstream stream) override;
  void OnCaptureEnd(CUstream stream) override { gate_->EndCapture(); }
  void OnForeignBytes(int64_t delta) override;
  void BeginForeignAllocation(uint64_t bytes) override;
  void EndForeignAllocation(uint64_t bytes, bool failed) override;
  bool ReleaseForOthers(uint64_t bytes_wanted) override {
    return allocations_->ReleaseForOthers(bytes_wanted);
  }
  absl::Status StopEvicting() override;

  void SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) override;

  std::shared_ptr<const policy::WriteFacts> LearntWrites() const override {
    return machinery_->writes.facts();
  }

  ResidencyStats Stats() const override;
  HeldChunks ChunksHeld() const override;
  void MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const override;
  std::string LastError() const override { return refusals_->OfThisThread(); }

  void Shutdown() override;
  void AbandonAfterFork() override;

  // For tests.
  Core* core() { return core_; }
  Charges* charges() { return &machinery_->charges; }
  FreeAddresses* free_addresses() { return &machinery_->addresses; }
  LaunchLog* log() { return &machinery_->log; }
  CleanCopies* clean_copies() { return &machinery_->clean; }
  HashLoader* hash() { return &machinery_->hash; }
  WriteSampler* writes() { return &machinery_->writes; }
  Evictor* evictor() { return &*machinery_->evictor; }
  Faulter* faulter() { return &*machinery_->faulter; }
  ClaimQueue* claims() { return &*machinery_->claims; }
  DeviceThread* thread() { return &*machinery_->thread; }
  // Aborts unless all books agree. Full: walks every block.
  void CheckInvariants();

 protected:
  // All that the device's thread uses: it stays if the thread cannot be ended.
  struct Machinery {
    Machinery(const ResidencyOptions& options, const ResidencyParts& parts);
    absl::Status Start();
    DeviceThread::Look Look();

    Core core;
    Charges charges;
    FreeAddresses addresses;
    CleanCopies clean;
    LaunchLog log;
    HashLoader hash;
    WriteSampler writes;
    // From Start on.
    std::unique_ptr<CopyStreams> copies;
    std::optional<DeviceThread> thread;
    std::optional<Faulter> faulter;
    std::optional<Evictor> evictor;
    std::optional<ClaimQueue> claims;
    std::optional<PlanRunner> plan_runner;
    std::optional<Reclaimer> reclaimer;
    std::optional<Allocations> allocations;
  };

  std::unique_ptr<Machinery> machinery_;
  Core* const core_;
  std::optional<LaunchGate> gate_;  // from Start on
  Allocations* allocations_ = nullptr;

 private:
  // Gives the block, just handed out, its memory; frees it again when that fails.
  absl::Status MapNow(Block* block, StreamRef stream);
  absl::Status HoldPinned(const Grant& grant, HoldReason reason, std::vector<HeldBlock>* out);
  void StampHiddenLocked(const TableLock& lock, Block* block, const HiddenUsers& users)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void StampAsCarrierLocked(const TableLock& lock, Block* block, const Block& carrier)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // What is counted by walking all live blocks.
  void AddBlocksLocked(const TableLock& lock, ResidencyStats* stats) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);

  Refusals own_refusals_;  // of a device that is not given the process's
  Refusals* const refusals_;
  bool left_behind_ = false;  // a thread that could not be ended
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_RESIDENCY_H_
