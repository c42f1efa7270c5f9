// DeviceResidency: a device's residency without audit. It creates the components, gives each of them its
// collaborators, and answers the application's calls. Allocations answers allocations and Launches answers
// launches; long-term pins, streams, reports, start and shutdown are here. residency.h documents each call:
// its effect, its thread and its errors.

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
  // Creates the components that call no driver. All pointers in `parts` must outlive this object.
  DeviceResidency(const ResidencyOptions& options, const ResidencyParts& parts);
  // Shuts down. Everything that a thread stuck in the driver still uses is left behind.
  ~DeviceResidency() override;
  // Creates the components that need the driver, and starts the device's thread. Call it once, before any
  // other call.
  absl::Status Start();

  // ---- Residency's methods; residency.h documents them.

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
  void RecordOverlap(StreamRef stream) override;
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

  // A pause of everything also gives back the chunks of freed blocks.
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
  MachineStats Machine() const override;
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

  // ---- For tests: the components, each of which has its own rules for threads.
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
  // Aborts unless all counts agree with the blocks. Visits every block.
  void CheckInvariants();

 protected:
  // Everything that the device's thread uses. It stays in memory when the thread cannot be ended.
  struct Components {
    Components(const ResidencyOptions& options, const ResidencyParts& parts);
    // Ends the thread before anything that it polls is destroyed.
    ~Components() {
      if (thread) thread->Stop();
    }
    absl::Status Start();
    // Polls all background work once, on the device's thread.
    DeviceThread::PollResult Poll();

    Core core;                // first: all others use it
    Charges charges;          // the account of the device's memory
    FreeAddresses addresses;  // addresses that may be handed out
    CleanCopies clean;        // copies off the GPU that may still be equal to their blocks
    Reach reach;              // extents that launches use in host memory
    LaunchLog log;            // launches in the order of the gate
    HashLoader hash;          // loads the content hash, on a thread of its own
    WriteSampler writes;      // learns which launches write
    // Created by Start.
    std::unique_ptr<CopyStreams> copies;
    std::optional<DeviceThread> thread;
    std::optional<SoftBlocks> soft;  // blocks that launches may use in host memory
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
  // Gives the block, which was just handed out, its memory. Frees the block again when that fails.
  absl::Status MapNow(Block* block, StreamRef stream);
  // Adds long-term pins to the granted blocks that are still live. Fails, and adds none, when the largest
  // launch would no longer fit.
  absl::Status PinGranted(const Grant& grant, PinReason reason, std::vector<PinnedBlock>* out);
  // Records on the block the work that `users` may have queued so far.
  void RecordEscapedUseLocked(const TableLock& lock, Block* block, const EscapedUsers& users)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Records on the block every use that is recorded on the block that contained its address.
  void RecordPointerBlockUsesLocked(const TableLock& lock, Block* block, const Block& pointer_block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Sets one limit of the budget; the lowest of all limits is in force.
  uint64_t SetLimit(uint64_t (Charges::*set)(TableLock*, uint64_t), uint64_t bytes);
  // Returns the bytes by which the job's share of the device could grow; 0: the device is not shared, or the
  // application's own limit is lower.
  uint64_t GrowableBytes(const Charges::Metrics& metrics) const;
  // Adds the metrics that are counted by visiting all live blocks.
  void AddBlocksLocked(const TableLock& lock, ResidencyStats* stats) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);

  Refusals own_refusals_;  // used when `parts` gives none of the process's
  Refusals* const refusals_;
  bool left_behind_ = false;  // a thread could not be ended
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_RESIDENCY_H_
