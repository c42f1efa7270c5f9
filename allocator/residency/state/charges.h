// Charges: the books of one device's memory: its chunks and the budget for them, what is live, what live blocks are
// promised off the GPU, and whether one more may be promised. Charged is what is live, never what once was; the formulas
// are those of the design, "Budget" and "Charging". Every thread, under the table's lock. A charge fails when the blocks
// could not be held on GPU, host and disk together, and says which term is short.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CHARGES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CHARGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/gpu_budget.h"
#include "allocator/residency/state/block_table.h"
#include "allocator/residency/state/residency_options.h"
#include "allocator/tier/spill_room.h"
#include "io/os/atomic.h"

namespace spillway::allocator {

// Where the chunks of a claim or an eviction come from. Counted, for tests.
enum class ChunkPath : int { kFreeChunks, kCreated, kStripped, kEvicted, kCount };

class Charges {
 public:
  // `evict`: whether anything may leave the GPU; may change at any time.
  Charges(const ResidencyOptions& options, const ResidencyParts& parts, BlockTable* table,
          const os::Atomic<bool>* evict);

  // ---- Chunks of the device.

  ChunkPool& chunks(const TableLock& lock) {
    lock.Covers(*table_);
    return chunks_;
  }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  // What the budget allows is tried again: it may have changed, or memory may have come back after a refused chunk.
  void RestoreTarget(const TableLock& lock);
  // The driver refused a chunk: the budget is what we hold from now on, until RestoreTarget.
  void LowerTarget(const TableLock& lock);
  // When the target was lowered so (nanoseconds of the system's steady clock); 0: it was not.
  int64_t lowered_at(const TableLock& lock) const {
    lock.Covers(*table_);
    return lowered_at_;
  }
  // Chunks were created.
  void NotePeak(const TableLock& lock);
  void NotePath(const TableLock& lock, ChunkPath path) {
    lock.Covers(*table_);
    ++paths_[static_cast<int>(path)];
  }
  uint64_t paths(const TableLock& lock, ChunkPath path) const {
    lock.Covers(*table_);
    return paths_[static_cast<int>(path)];
  }

  // ---- What the application's other allocations take of the budget.

  void AddExternal(const TableLock& lock, int64_t delta);
  // An external allocation is about to be made; has been made, or failed.
  void BeginExternal(const TableLock& lock, uint64_t bytes);
  void EndExternal(const TableLock& lock, uint64_t bytes, bool failed);

  // ---- Charging.

  // Charges a block of so many chunks that is still to be found, so that nobody else is promised the same room. Waits
  // for the tiers to grow where that is all it takes, without the lock; `serving` is asked after that, and its error
  // ends the charge. To be followed by Confirm or Cancel.
  absl::Status Begin(TableLock* lock, uint64_t chunks, absl::FunctionRef<absl::Status()> serving);
  void Confirm(const TableLock& lock, Block* block);
  void Cancel(const TableLock& lock, uint64_t chunks);
  // The live block is freed, and has no holds any more.
  void End(const TableLock& lock, Block* block);
  // What blocks that have gone were promised off the GPU is free for others.
  void LowerPromise(const TableLock& lock);
  // Whether the largest launch still fits beside what never leaves.
  bool LaunchFits(const TableLock& lock) const;
  // The account off the GPU, which devices share.
  SpillRoom* room() const { return room_; }

  // ---- Reports.

  struct Figures {
    uint64_t target_bytes = 0;  // of the budget, what chunks may hold now
    uint64_t held_bytes = 0;    // all chunks that we hold
    uint64_t peak_held_bytes = 0;
    uint64_t live_bytes = 0;  // in whole chunks
    uint64_t requested_bytes = 0;
    uint64_t peak_live_bytes = 0;
    uint64_t peak_requested_bytes = 0;  // at that peak
    uint64_t peak_device_bytes = 0;     // most of chunks and external allocations together
    uint64_t external_bytes = 0;
    uint64_t promised_bytes = 0;  // off the GPU, by this device
  };
  Figures figures(const TableLock& lock) const;
  // Aborts unless the books agree with the blocks: `live` chunks in `blocks` live ones, `backing` chunks in all.
  void CheckInvariants(const TableLock& lock, uint64_t live, uint64_t blocks, uint64_t backing) const;

 private:
  Charge ChargeOf(uint64_t more_chunks) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Promises room for a new block, or says why not; `lacking_bytes`: of room off the GPU, which may yet grow.
  absl::Status Promise(uint64_t chunks, uint64_t* lacking_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  absl::Status PromiseAndGrow(uint64_t chunks, absl::FunctionRef<absl::Status()> serving)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Which term is short, by how much, and what would help.
  absl::Status RefusalOf(const Charge& charge, uint64_t others_promised) const;
  void LowerPromiseNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);

  const uint64_t chunk_bytes_;
  BlockTable* const table_;
  const os::Atomic<bool>* const evict_;
  const std::unique_ptr<SpillRoom> own_room_;  // of a device that shares its tiers with none
  SpillRoom* const room_;

  ChunkPool chunks_ ABSL_GUARDED_BY(table_->mu);
  GpuBudget budget_ ABSL_GUARDED_BY(table_->mu);
  uint64_t live_blocks_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t live_chunks_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t begun_chunks_ ABSL_GUARDED_BY(table_->mu) =
      0;  // of live_chunks_: their block is still being found
  uint64_t promised_bytes_ ABSL_GUARDED_BY(table_->mu) = 0;   // this device's part of room_'s promises
  uint64_t requested_bytes_ ABSL_GUARDED_BY(table_->mu) = 0;  // of live blocks
  int64_t lowered_at_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t peak_live_chunks_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t peak_requested_bytes_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t peak_device_bytes_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t paths_[static_cast<int>(ChunkPath::kCount)] ABSL_GUARDED_BY(table_->mu) = {};
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CHARGES_H_
