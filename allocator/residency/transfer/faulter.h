// Faulter: brings spilled blocks back. The thread that starts a fetch maps the chunks and enqueues the copies
// from host memory. This is a launching thread for a fault, and the device's thread for a prefetch. Extents
// on disk go through staging buffers; the device's thread drives that, with CopyIn. The spilled copy stays
// valid until the last byte has arrived. If the address maps the homes meanwhile (SoftBlocks), the device's
// thread does everything, in a standstill. A fetch that fails leaves its block spilled. Launches that name a
// block whose only copy cannot be read are refused.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_FAULTER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_FAULTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/clean_copies.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/free_addresses.h"
#include "allocator/residency/state/reach.h"
#include "allocator/residency/transfer/copy_in.h"

namespace spillway::allocator {

class Faulter {
 public:
  struct Parts {
    Charges* charges = nullptr;
    FreeAddresses* addresses = nullptr;
    CleanCopies* clean = nullptr;
    CopyStreams* copies = nullptr;
    Reach* reach = nullptr;
    // SoftBlocks::EndLocked, for a freed block.
    std::function<void(const TableLock&, Block*)> end_soft;
    HashLoader* hash = nullptr;
  };
  // `wake` makes the device's thread call Poll; it is called from any thread.
  Faulter(Core* core, const Parts& parts, std::function<void()> wake);
  ~Faulter();

  // Takes the chunks, beside the extents that are to be reached, and moves a kSpilled block to kFaulting.
  void BeginLocked(const TableLock& lock, Block* block, std::vector<ChunkHandle> handles, bool prefetch);
  // Maps the chunks, enqueues the copies that are possible now and posts the rest to the device's thread. The
  // context must be current; called without the lock. On failure the block is kSpilled again and its chunks
  // are free; the status is the reason.
  absl::Status Start(Block* block);
  // Maps the chunks of a kEmpty block (handles set, mapping = true) and makes it kResident. Otherwise like
  // Start.
  absl::Status MapEmpty(Block* block);

  // Called when a launch needs a block that is being fetched: its reads go first from now on. Undoes a
  // cancel.
  void DemandLocked(const TableLock& lock, Block* block);
  // Takes back a fetch for which no launch waits, because its chunks are needed elsewhere or the block was
  // freed.
  static void CancelLocked(const TableLock&, Block* block) { block->fetch.job->cancelled = true; }

  // Advances every fetch as far as it can go without waiting, and ends those whose copies have arrived.
  // Returns true when something changed. Device's thread.
  bool Poll();
  // Cancels the prefetches for which no launch waits, which frees their chunks. Returns true when there was
  // one.
  bool CancelPrefetchesLocked(const TableLock& lock);
  bool idle() const { return jobs_.empty(); }
  size_t prefetches_under_way() const;

 private:
  absl::Status BringIn(FetchJob* job, bool* mapped);
  bool Exchange(FetchJob* job);
  void EnqueueHash(FetchJob* job);
  void CompareLocked(const TableLock& lock, FetchJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void GiveUpLocked(const TableLock& lock, FetchJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool TakeMappingBack(FetchJob* job);
  bool ChecksArrival(const FetchJob& job) const;
  bool BeginCheck(FetchJob* job);
  bool BeginArrivedHash(FetchJob* job);
  bool CheckArrival(FetchJob* job);
  void FetchAgain(FetchJob* job);
  void ForgetHash(FetchJob* job);
  bool CompleteArrival(FetchJob* job);
  void Publish(FetchJob* job);
  void EndMeasuring(FetchJob* job, uint64_t bytes);
  void CountLateness(const FetchJob& job, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool Drain(FetchJob* job);
  void ForgetDrain(FetchJob* job);
  void GiveRetiredLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool Advance(FetchJob* job, bool any_demanded);
  // Ends a fetch that was taken back: the block is spilled as before, or gone if it was freed meanwhile.
  void BackToSpilledLocked(const TableLock& lock, Block* block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void ReleaseHomesLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void KeepCopyLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void RecordUnreadable(FetchJob* job);

  // An arrival event that a launching thread may just be making its stream wait for. It is kept until the
  // block has no pin.
  struct Retired {
    Block* block;
    CUevent event;
  };

  Core* const core_;
  Charges* const charges_;
  FreeAddresses* const addresses_;
  CleanCopies* const clean_;
  CopyStreams* const copies_;
  Reach* const reach_;
  const std::function<void(const TableLock&, Block*)> end_soft_;
  HashLoader* const hash_;
  const std::function<void()> wake_;
  CopyIn copy_in_;

  std::vector<Retired> retired_ ABSL_GUARDED_BY(core_->table.mu);
  std::vector<FetchJob*> posted_ ABSL_GUARDED_BY(core_->table.mu);  // new since the last Poll
  std::vector<std::unique_ptr<FetchJob>> jobs_;                     // device's thread
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_FAULTER_H_
