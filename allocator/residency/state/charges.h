// Charges: the account of one device's memory: its chunks and their budget, the live blocks, and the capacity
// off the GPU that is promised to them. It decides whether one more block may be promised. It counts what is
// live now, never what once was; docs/design.md (Accounting) has the formulas. Allocations, ClaimQueue,
// Evictor and Reclaimer call it, on any thread, under the table's lock. A charge fails when GPU, host and
// disk together could not hold all blocks; the error names the term that is short.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CHARGES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CHARGES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/gpu_budget.h"
#include "allocator/residency/state/block_table.h"
#include "allocator/residency/state/gpu_share.h"
#include "allocator/residency/state/residency_options.h"
#include "allocator/tier/shared_capacity.h"
#include "io/os/atomic.h"

namespace spillway::allocator {

class Charges {
 public:
  // `evict` tells whether anything may leave the GPU; it may change at any time.
  Charges(const ResidencyOptions& options, const ResidencyParts& parts, BlockTable* table,
          const os::Atomic<bool>* evict);

  // ---- Chunks of the device.

  ChunkPool& chunks(const TableLock& lock) {
    lock.Covers(*table_);
    return chunks_;
  }
  // Sets the target back to what the budget allows, because the budget has changed, or because the driver may
  // have memory again after it refused a chunk.
  void RestoreTarget(const TableLock& lock);
  // Makes the existing chunks the target, until RestoreTarget, because the driver refused a chunk. Returns
  // true when the target is lower by a sixteenth of the budget than when it last returned true, so that a
  // line is worth writing.
  bool LowerTarget(const TableLock& lock);
  // Time of the last LowerTarget since RestoreTarget, in nanoseconds of the system's steady clock; 0 for
  // none.
  int64_t lowered_at(const TableLock& lock) const {
    lock.Covers(*table_);
    return lowered_at_;
  }
  // Limits the chunks to `bytes` so that the driver has memory. The limit lasts until RestoreTarget, which a
  // caller that needs more chunks calls.
  void LowerTargetTo(const TableLock& lock, uint64_t bytes);
  // Limits the chunks by the device memory that is free beside them, in bytes, where the budget allows more.
  void LimitByFree(const TableLock& lock, uint64_t free_bytes);
  // Sets the application's own limit on the budget, in bytes; UINT64_MAX for none. Blocks above the limit
  // leave. Waits without the lock for the tiers to grow. A limit below what the tiers can take of the live
  // blocks is raised to that. Returns the limit.
  uint64_t SetCap(TableLock* lock, uint64_t bytes);
  // Sets the limit of jobs that share the device (GpuShare), by the present capacity of the tiers. The result
  // is never more than the larger of `bytes` and the earlier share.
  uint64_t SetShare(TableLock* lock, uint64_t bytes);
  // Lets the tiers grow by the capacity that a share of `bytes` needs. Waits for that without the lock.
  void PrepareShare(TableLock* lock, uint64_t bytes);
  // The lower of the application's limit and the share.
  uint64_t limit(const TableLock& lock) const {
    lock.Covers(*table_);
    return budget_.Limit();
  }
  // Adds the blocks' needs of a shared device. `need` already has the bytes that are paused.
  void AddShareNeed(const TableLock& lock, ShareNeed* need) const;
  // The share with which chunks could be `bytes`, or the part of them that is not reached; 0 when a larger
  // share would not help.
  uint64_t ShareThatFits(const TableLock& lock, uint64_t bytes) const;
  // Promises a place off the GPU for `bytes` of blocks that are about to be paused, beside the blocks that
  // are. Returns 0 on success. Otherwise the tiers have no place now and nothing is promised; the result is
  // the number of bytes that are still to be promised.
  uint64_t PromisePause(const TableLock& lock, uint64_t bytes);
  // Raises the target to at least `chunks`, by lending the parts of the budget that are otherwise left free
  // (GpuBudget). Returns false, and lends nothing, when that is not enough. Loans come back as blocks are
  // freed.
  bool Lend(const TableLock& lock, uint64_t chunks);
  // The most chunks that there may be with everything lent.
  uint64_t most_chunks(const TableLock& lock) const {
    lock.Covers(*table_);
    return std::max(chunks_.target(), budget_.MostTarget() / chunk_bytes_);
  }
  // Whether the device allows less than the budget does.
  bool device_limits(const TableLock& lock) const {
    lock.Covers(*table_);
    return budget_.DeviceTarget() < budget_.BudgetTarget();
  }
  // Bytes of a launch that may be in host memory while it runs (Reach): the most that the host tier may
  // become. 0 when kernels reach nothing. It is 0 also under a limit of the application's own, which means
  // that a larger launch is refused.
  uint64_t reachable_bytes(const TableLock& lock) const {
    lock.Covers(*table_);
    return host_ == nullptr || !host_->reachable() || Capped() ? 0 : host_->storage_cap_bytes();
  }
  // Bytes of chunks without which some launch does not fit: those of the largest launch and of pinned blocks.
  uint64_t LeastBytes(const TableLock& lock) const;
  // Called after chunks were created.
  void RecordPeak(const TableLock& lock);

  // ---- The part of the budget that the application's other allocations take.

  void AddExternal(const TableLock& lock, int64_t delta);
  // Called before an external allocation is made, and after it was made or has failed.
  void BeginExternal(const TableLock& lock, uint64_t bytes);
  void EndExternal(const TableLock& lock, uint64_t bytes, bool failed);

  // ---- Charging.

  // Charges a block of `chunks` chunks before it exists, so that no other allocation is promised the same
  // capacity. When only the tiers' capacity is short, waits without the lock for them to grow, and then asks
  // `serving`, whose error ends the charge. Confirm or Cancel must follow.
  absl::Status Begin(TableLock* lock, uint64_t chunks, absl::FunctionRef<absl::Status()> serving) {
    lock->Covers(*table_);
    if (!FitsGpuWith(chunks)) {
      absl::Status status =
          share_ == nullptr ? PromiseAndGrow(lock, chunks, serving) : PromiseOnShare(lock, chunks, serving);
      if (!status.ok()) return status;
    }
    live_chunks_ += chunks;
    begun_chunks_ += chunks;
    return absl::OkStatus();
  }
  void Confirm(const TableLock& lock, Block* block) {
    lock.Covers(*table_);
    begun_chunks_ -= block->chunks;
    ++live_blocks_;
    requested_bytes_ += block->allocation.requested_bytes;
    if (live_chunks_ > peak_live_chunks_) {
      peak_live_chunks_ = live_chunks_;
      peak_requested_bytes_ = requested_bytes_;
    }
    RecordPeak(lock);
    table_->RecordHandedOutLocked(lock, block);
  }
  void Cancel(const TableLock& lock, uint64_t chunks);
  // Ends the charge of a live block that is freed. ForgetPinsLocked must have been called before.
  void End(const TableLock& lock, Block* block) {
    lock.Covers(*table_);
    --live_blocks_;
    live_chunks_ -= block->chunks;
    requested_bytes_ -= block->allocation.requested_bytes;
    table_->RecordFreedLocked(lock, block);
    if (budget_.lent != 0) ReturnLent(lock);
    if (promised_bytes_ != 0) LowerPromise(lock);
  }
  // Gives back the promise of capacity off the GPU that freed blocks no longer need.
  void LowerPromise(const TableLock& lock);
  // Whether the largest launch still fits the GPU beside the blocks with long-term pins. Lends for it.
  bool LaunchFits(const TableLock& lock);
  // The account of the tiers' capacity, which the devices share.
  SharedCapacity* capacity() const { return capacity_; }

  // ---- Reports.

  struct Metrics {
    uint64_t most_budget_bytes = 0;  // of the options, plus the most lent of the reserve: bounds every peak
    uint64_t whole_bytes = 0;        // of the options, with the reserve: never changes
    uint64_t budget_bytes = 0;       // now: at most the application's own limit or the job's share
    uint64_t own_limit_bytes = 0;    // the application's limit, where it is the lowest; else 0
    uint64_t share_bytes = 0;        // 0: the device is not shared
    uint64_t budget_in_force_bytes = 0;  // part of budget_bytes: less while the driver has less
    uint64_t target_bytes = 0;           // part of that: what chunks may have now
    uint64_t chunk_bytes = 0;            // all chunks that we have
    uint64_t peak_chunk_bytes = 0;
    uint64_t live_bytes = 0;  // in whole chunks
    uint64_t requested_bytes = 0;
    uint64_t peak_live_bytes = 0;
    uint64_t peak_requested_bytes = 0;  // at that peak
    uint64_t peak_device_bytes = 0;     // most of chunks and external allocations together
    uint64_t reserved_bytes = 0;        // chunk_bytes, and the bytes of live blocks without chunks
    uint64_t peak_reserved_bytes = 0;
    uint64_t external_bytes = 0;
    uint64_t least_budget_bytes =
        0;                        // with which every launch still fits, or all blocks where none may leave
    uint64_t promised_bytes = 0;  // off the GPU, by this device
  };
  Metrics metrics(const TableLock& lock) const;
  // Chunks of live blocks that have chunks.
  uint64_t BackedChunks(const TableLock& lock) const;
  // Aborts unless the account agrees with the blocks: `live` chunks in `blocks` live blocks, and `backing`
  // chunks in all.
  void CheckInvariants(const TableLock& lock, uint64_t live, uint64_t blocks, uint64_t backing) const;

 private:
  uint64_t ReservedChunks(const TableLock& lock) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu) {
    return chunks_.created() + live_chunks_ - std::min(live_chunks_, BackedChunks(lock));
  }
  // Lets the tiers grow by the capacity that a lower limit needs.
  void GrowForLimit(TableLock* lock, uint64_t GpuBudget::*limit, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Sets a limit. One below what the tiers can take of the live blocks is raised to that.
  void SetLimit(const TableLock& lock, uint64_t GpuBudget::*limit, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Bytes for which SharedCapacity::Grow must be asked so that the charge can be promised; 0 when it can be
  // promised now.
  uint64_t MoreToGrow(const Charge& charge) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Promises the capacity that the charge needs beyond the GPU, never less than is promised already. Returns
  // false when nothing has changed because the capacity is short.
  bool RaisePromise(const Charge& charge) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Whether the application's own limit is the lowest.
  bool Capped() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu) {
    return budget_.cap < std::min(budget_.budget, budget_.share);
  }
  // Whether nothing need be promised. Blocks that fit the GPU together need no capacity of the tiers,
  // whatever is launched.
  bool FitsGpuWith(uint64_t more_chunks) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu) {
    return live_chunks_ + more_chunks <= chunks_.target() && promised_bytes_ == 0;
  }
  Charge ChargeOf(const TableLock& lock, uint64_t more_chunks) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Gives back the loans that launches do not need, if the tiers can promise the live bytes beyond the GPU.
  void ReturnLent(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Bytes that the GPU must have for a charge: its launch, and the bytes for which the tiers have no
  // capacity. With `tiers_grow`, capacity that the tiers may still get counts as theirs.
  uint64_t NeededOnGpu(const Charge& charge, bool tiers_grow) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Lends so that a refused block fits after all: its launch, or the bytes for which the tiers have no
  // capacity. Returns false when no loan helps. With `tiers_grow`, capacity that the tiers lack now is no
  // reason to lend.
  bool LendFor(const TableLock& lock, const Charge& charge, bool tiers_grow)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Promises capacity for a new block, or returns the refusal. `lacking_bytes` is the capacity off the GPU
  // that is short and may still grow.
  absl::Status Promise(const TableLock& lock, uint64_t chunks, bool tiers_grow, uint64_t* lacking_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  absl::Status PromiseAndGrow(TableLock* lock, uint64_t chunks, absl::FunctionRef<absl::Status()> serving)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Does the same on a device that jobs share: asks for a larger share before anything has to leave, and
  // waits for one rather than refuse.
  absl::Status PromiseOnShare(TableLock* lock, uint64_t chunks, absl::FunctionRef<absl::Status()> serving)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // The refusal: the term that is short, by how much, and what would help.
  absl::Status RefusalOf(Charge charge, uint64_t promised_elsewhere) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // The text for bytes that GPU and tiers together cannot hold.
  std::string CapacityText(const Charge& charge, uint64_t promised_elsewhere) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  std::string OnGpuText(const Charge& charge) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);

  const uint64_t chunk_bytes_;
  BlockTable* const table_;
  const os::Atomic<bool>* const evict_;
  GpuShare* const share_;
  const HostPool* const host_;
  const std::unique_ptr<SharedCapacity> own_capacity_;  // for a device that shares its tiers with none
  SharedCapacity* const capacity_;

  ChunkPool chunks_ ABSL_GUARDED_BY(table_->mu);
  GpuBudget budget_ ABSL_GUARDED_BY(table_->mu);
  uint64_t live_blocks_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t live_chunks_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t begun_chunks_ ABSL_GUARDED_BY(table_->mu) =
      0;  // part of live_chunks_ whose block is still being found
  uint64_t promised_bytes_ ABSL_GUARDED_BY(table_->mu) = 0;   // this device's part of capacity_'s promises
  uint64_t requested_bytes_ ABSL_GUARDED_BY(table_->mu) = 0;  // of live blocks
  int64_t lowered_at_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t least_reported_bytes_ ABSL_GUARDED_BY(table_->mu) = UINT64_MAX;
  bool lowered_for_driver_ ABSL_GUARDED_BY(table_->mu) = false;  // by LowerTargetTo
  uint64_t peak_lent_reserve_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t peak_live_chunks_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t peak_requested_bytes_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t peak_device_bytes_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t peak_reserved_chunks_ ABSL_GUARDED_BY(table_->mu) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CHARGES_H_
