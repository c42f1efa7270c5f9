// DeviceResidency: the door's implementation. Allocation and frees are in device_allocation.cc, launches in
// device_launch.cc, holds in device_holds.cc; streams, others' memory, reports and both ends of life in
// device_residency.cc.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_RESIDENCY_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_RESIDENCY_H_

#include <memory>
#include <string>

#include "allocator/residency/core.h"
#include "allocator/residency/device_thread.h"
#include "allocator/residency/launch_observer.h"
#include "allocator/residency/residency.h"
#include "allocator/residency/transfer.h"
#include "io/os/atomic.h"

namespace spillway::allocator {

class DeviceResidency : public Residency {
 public:
  DeviceResidency(const ResidencyOptions& options, const ResidencyParts& parts);
  ~DeviceResidency() override;
  absl::Status Start();

  absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes, StreamRef stream) override;
  absl::Status Free(CUdeviceptr address) override;
  absl::Status RecordStream(CUdeviceptr address, CUstream stream) override;
  absl::Status EmptyCache() override;
  absl::StatusOr<Range> FindRange(CUdeviceptr address) const override;

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
  void OnCaptureEnd(CUstream stream) override;
  void OnForeignBytes(int64_t delta) override;
  void BeginForeignAllocation(uint64_t bytes) override;
  void EndForeignAllocation(uint64_t bytes, bool failed) override;
  bool ReleaseForOthers(uint64_t bytes_wanted) override;
  absl::Status StopEvicting() override;

  void SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) override;

  std::shared_ptr<const policy::WriteFacts> LearntWrites() const override { return core_->writes.facts(); }

  ResidencyStats Stats() const override;
  HeldChunks ChunksHeld() const override;
  void MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const override;
  std::string LastError() const override;

  void Shutdown() override;
  void AbandonAfterFork() override;

  // For tests.
  Core* core() { return core_.get(); }
  DeviceThread* thread() { return thread_.get(); }
  // Aborts unless all books agree. Full: walks every block.
  void CheckInvariants();

 protected:
  // Lets the device whose context the launch is called in touch the pinned blocks, which are mapped for their own
  // alone.
  void GrantToCaller(StreamRef stream, const Grant& grant);
  CUresult InCallersContext(StreamRef stream, absl::FunctionRef<CUresult()> call) const;
  // Whether work on the stream goes into a graph. Context current.
  bool IsCapturing(StreamRef stream) const;
  int OpenCaptures() const { return captures_.load(); }
  AccessSet LiveBlocks() const;
  // Claims `needed`, launches and stamps it under pins, and reports `named` as the launch's set. Context current.
  CUresult RunClaimed(const AccessSet& needed, const AccessSet& named, StreamRef stream, uint64_t tag,
                      absl::FunctionRef<CUresult()> launch);
  CUresult Refuse(const absl::Status& why) const;
  // What a launch gets while nothing is moved any more.
  CUresult Bypass(absl::FunctionRef<CUresult()> launch) const;
  // What a launch gets that could not be prepared: Bypass where nothing is moved any more, else Refuse.
  CUresult Ended(const absl::Status& why, absl::FunctionRef<CUresult()> launch) const;
  // Its words are LastError's from now on. Returns it.
  absl::Status NoteError(const absl::Status& why) const;
  absl::Status WithAdvice(const absl::Status& why, uint64_t tag, size_t blocks) const;

  std::unique_ptr<Core> core_;
  std::unique_ptr<CopyStreams> copies_;
  std::unique_ptr<DeviceThread> thread_;

 private:
  // Bytes of the set, in whole chunks.
  uint64_t BytesOf(const AccessSet& set) const;
  // Whether nothing keeps the set from being launched on; then also its bytes. Inside a gate slot.
  bool AllOpen(const AccessSet& set, uint64_t* bytes) const;
  // After a launch on `stream` that touches `bytes`: numbers it. The caller then stamps its blocks.
  Stamp NumberLaunch(StreamIndex stream, uint64_t bytes, policy::LaunchIndex* index);
  // After the stamps: records an event where one is due, tells the observer.
  void AfterLaunch(const AccessSet& set, StreamIndex stream, policy::LaunchIndex index, uint64_t tag);
  // At a launch's entry: whether its way is to be marked for the observer.
  bool MarkEntry(StreamRef stream) const;
  // Right before the real launch.
  void MarkReady(StreamRef stream) const;
  // Remembers a set that is larger than all that are. Takes the lock then.
  void NoteSet(const AccessSet& set, uint64_t bytes) {
    if (__builtin_expect(bytes > core_->table.launch_sets.largest_bytes(), 0)) RememberSet(set);
  }
  void RememberSet(const AccessSet& set);
  // Waits while uncompleted launches touch more than the bound. Without lock or slot.
  absl::Status WaitForRunAhead(uint64_t bytes, uint64_t tag);
  bool EndsAtRunAhead(const AccessSet& set, uint64_t tag, absl::FunctionRef<CUresult()> launch,
                      CUresult* answer);
  Stamp StampToWaitFor() const;
  CUresult RunPrepared(const AccessSet& needed, const AccessSet& named, StreamIndex index, uint64_t tag,
                       absl::FunctionRef<CUresult()> launch, Grant* grant);
  absl::Status Prepare(const AccessSet& set, const StreamRef* stream, uint64_t tag, Grant* grant);
  // What the driver answered to a launch; keeps an error that ends the device.
  CUresult NoteResult(CUresult result);
  std::string NameOfLaunch(uint64_t tag) const;
  absl::Status AwaitArrival(CUevent arrival);
  void NoteWaiter(StreamRef stream, const Grant& grant);
  absl::Status HoldPinned(const Grant& grant, HoldReason reason, std::vector<HeldBlock>* out);
  void StampQueuedWorkLocked(Block* block, StreamRef stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void StampHiddenLocked(Block* block, const HiddenUsers& users)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void StampAsCarrierLocked(Block* block, const Block& carrier)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  Charge ChargeOfLocked(uint64_t more_chunks) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void LowerPromiseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Promises room for a new block, or says why not; `lacking_bytes`: of room off the GPU, which may yet grow.
  absl::Status ChargeLocked(uint64_t chunks, uint64_t* lacking_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // The same; waits for the tiers to grow where that is all it takes. May release the lock.
  absl::Status ChargeAndGrowLocked(uint64_t chunks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  absl::Status RefusalOf(const Charge& charge, uint64_t others_promised) const;
  absl::Status AwaitEndOfTransferLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  Block* TakeBlockLocked(uint32_t chunks, CUstream stream, absl::Status* status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Gives the block, just handed out, its memory; frees it again when that fails.
  absl::Status MapNow(Block* block, StreamRef stream);
  void FreeLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Strips up to `chunks` chunks of cached blocks and waits for it.
  absl::Status StripCache(uint64_t chunks);

  uint64_t ResidentBytesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);

  bool left_behind_ = false;     // a thread that could not be ended
  os::Atomic<int> captures_{0};  // streams under capture
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_RESIDENCY_H_
