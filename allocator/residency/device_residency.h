// DeviceResidency: a device's residency without audit. It makes the parts, gives each what it works with, and
// answers the application's calls: allocation by Allocations, launches by Launches; long-term pins,
// streams, reports, start and shutdown here. Residency says of each call what it does, on which thread, and
// how it fails.

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
#include "allocator/residency/launches.h"
#include "allocator/residency/pauser.h"
#include "allocator/residency/plan/plan_runner.h"
#include "allocator/residency/releaser.h"
#include "allocator/residency/residency.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/demoter.h"
#include "allocator/residency/transfer/link_probe.h"
#include "allocator/residency/transfer/reclaimer.h"
#include "allocator/residency/transfer/write_sampler.h"

namespace spillway::allocator {

class DeviceResidency : public Residency {
 public:
  // Makes the parts that call no driver. All pointers in `parts` must outlive this object.
  DeviceResidency(const ResidencyOptions& options, const ResidencyParts& parts);
  // Shuts down. What a thread stuck in the driver still uses is left behind.
  ~DeviceResidency() override;
  // Makes the parts that need the driver, and starts the device's thread. Once, before any other call.
  absl::Status Start();

  // ---- As Residency says.

  using Residency::Allocate;
  absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes, StreamRef stream, BlockRegion region) override;
  absl::Status Free(CUdeviceptr address) override {
    return core_->closed.load() ? absl::OkStatus() : allocations_->Free(address);
  }
  absl::Status RecordStream(CUdeviceptr address, CUstream stream) override {
    return allocations_->RecordStream(address, stream);
  }
  absl::Status EmptyCache() override { return components_->releaser->EmptyCache(); }
  absl::StatusOr<Range> FindRange(CUdeviceptr address) const override {
    return allocations_->FindRange(address);
  }

  CUresult Run(const AccessSet& set, StreamRef stream, uint64_t tag,
               absl::FunctionRef<CUresult()> launch) override;
  CUresult RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                     absl::FunctionRef<CUresult()> launch) override;
  CUresult RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                          absl::FunctionRef<CUresult()> launch) override;
  using Residency::Pin;
  absl::Status Pin(const AccessSet& set, PinReason reason, std::vector<PinnedBlock>* pinned) override;
  void Unpin(const std::vector<PinnedBlock>& pinned, PinReason reason, const EscapedUsers& users) override;
  void FindRanges(const AccessSet& set, std::vector<Range>* ranges) const override;

  void OnStreamDestroy(CUstream stream) override;
  void OnCaptureBegin(CUstream stream) override;
  void OnCaptureEnd(CUstream stream) override { launches_->EndCapture(); }
  void OnExternalBytes(int64_t delta) override;
  void BeginExternalAllocation(uint64_t bytes) override;
  void EndExternalAllocation(uint64_t bytes, bool failed) override;
  bool GiveBack(int attempt, uint64_t bytes_wanted) override {
    return components_->releaser->GiveBack(attempt, bytes_wanted);
  }
  absl::Status StopEvicting() override;

  // Gives back what freed blocks have, too, where everything is paused.
  absl::Status Pause(const PauseScope& scope, PauseStats* stats) override;
  absl::Status Resume(const PauseScope& scope, bool wait) override;
  absl::Status ReadPaused(CUdeviceptr address, std::byte* to, uint64_t bytes) const override {
    return core_->closed.load() ? core_->StopStatus() : components_->pauser->Read(address, to, bytes);
  }

  void SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) override;

  void GuessWrites(const std::vector<policy::FormFacts>& guesses) override {
    components_->writes.Guess(guesses);
  }
  std::shared_ptr<const policy::WriteFacts> LearntWrites() const override {
    return components_->writes.facts();
  }

  ResidencyStats Stats() const override;
  MachineFigures Machine() const override;
  ReservedBytes Reserved() const override;
  void MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const override;
  uint64_t SetCap(uint64_t bytes) override { return SetLimit(&Charges::SetCap, bytes); }
  uint64_t SetShare(uint64_t bytes) override { return SetLimit(&Charges::SetShare, bytes); }
  void PrepareShare(uint64_t bytes) override;
  ShareNeed GetShareNeed() const override;
  bool Quiet() override;
  std::vector<LargeBlock> LargestBlocks(size_t most) const override { return allocations_->Largest(most); }
  std::vector<BlockBytes> PinnedBlocks() const override { return allocations_->Pinned(); }
  std::string LastError() const override { return refusals_->OfThisThread(); }

  void Shutdown() override;
  void AbandonAfterFork() override;

  // ---- For tests: the parts, each of which has its own rules for threads.
  Core* core() { return core_; }
  Charges* charges() { return &components_->charges; }
  FreeAddresses* free_addresses() { return &components_->addresses; }
  LaunchLog* log() { return &components_->log; }
  HashLoader* hash() { return &components_->hash; }
  WriteSampler* writes() { return &components_->writes; }
  Evictor* evictor() { return &*components_->evictor; }
  Faulter* faulter() { return &*components_->faulter; }
  Demoter* demoter() { return &*components_->demoter; }
  ClaimQueue* claims() { return &*components_->claims; }
  DeviceThread* thread() { return &*components_->thread; }
  // Aborts unless all counts agree with the blocks. Walks every block.
  void CheckInvariants();

 protected:
  // All that the device's thread uses: it stays when the thread cannot be ended.
  struct Components {
    Components(const ResidencyOptions& options, const ResidencyParts& parts);
    // The thread ends before what it polls.
    ~Components() {
      if (thread) thread->Stop();
    }
    absl::Status Start();
    // Polls all background work once, on the device's thread.
    DeviceThread::PollResult Poll();

    Core core;                // first: all others stand on it
    Charges charges;          // the account of the device's memory
    FreeAddresses addresses;  // those that may be handed out
    CleanCopies clean;        // copies off the GPU that may still be equal to their blocks
    Reach reach;              // what launches use in host memory
    LaunchLog log;            // launches in the order of the gate
    HashLoader hash;          // loads the content hash, on a thread of its own
    WriteSampler writes;      // learns which launches write
    // From Start on.
    std::unique_ptr<CopyStreams> copies;
    std::optional<DeviceThread> thread;
    std::optional<SoftBlocks> soft;  // what they may use there
    std::optional<Faulter> faulter;
    std::optional<Demoter> demoter;
    std::optional<LinkProbe> probe;  // measures the link
    std::optional<Evictor> evictor;
    std::optional<ClaimQueue> claims;
    std::optional<PlanRunner> plan_runner;
    std::optional<Reclaimer> reclaimer;
    std::optional<Releaser> releaser;
    std::optional<Pauser> pauser;
    std::optional<Allocations> allocations;
  };

  std::unique_ptr<Components> components_;
  Core* const core_;
  std::optional<Launches> launches_;  // from Start on; its pins and refusals come back to this object
  Allocations* allocations_ = nullptr;

 private:
  // Gives the block, just handed out, its memory; frees it again when that fails.
  absl::Status MapNow(Block* block, StreamRef stream);
  // Adds long-term pins to the granted blocks that are still live. Fails, and adds none, when the largest
  // launch would then no longer fit.
  absl::Status PinGranted(const Grant& grant, PinReason reason, std::vector<PinnedBlock>* out);
  // Records on the block what `users` may have queued so far.
  void RecordEscapedUseLocked(const TableLock& lock, Block* block, const EscapedUsers& users)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Records on the block every use that is recorded on the block that carried its address.
  void RecordPointerBlockUsesLocked(const TableLock& lock, Block* block, const Block& pointer_block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Sets one limit of the budget; the lower of them all is in force.
  uint64_t SetLimit(uint64_t (Charges::*set)(TableLock*, uint64_t), uint64_t bytes);
  // Adds what is counted by walking all live blocks.
  void AddBlocksLocked(const TableLock& lock, ResidencyStats* stats) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);

  Refusals own_refusals_;  // of a device that is not given the process's
  Refusals* const refusals_;
  bool left_behind_ = false;  // a thread that could not be ended
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_RESIDENCY_H_
