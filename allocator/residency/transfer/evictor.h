// Evictor: takes blocks off the GPU, in phases: close the gate, wait for the last use, copy out, unmap (the
// commit point), publish. A block with nothing worth keeping (cached, or not used since its hand-out) is
// decommitted: the same without the copy. Reclaimer and PlanRunner choose the blocks and the tier that is
// tried first, and CopyOut moves the bytes. Any thread starts an eviction or takes it back; the device's
// thread carries it on. An eviction that fails leaves its block on the GPU and is tried again after a while.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_EVICTOR_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_EVICTOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/clean_copies.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/free_addresses.h"
#include "allocator/residency/state/reach.h"
#include "allocator/residency/transfer/copy_out.h"
#include "allocator/residency/transfer/soft_blocks.h"
#include "policy/model/plan.h"

namespace spillway::allocator {

class Evictor {
 public:
  struct Parts {
    Charges* charges = nullptr;
    FreeAddresses* addresses = nullptr;
    CleanCopies* clean = nullptr;
    HashLoader* hash = nullptr;
    CopyStreams* copies = nullptr;
    Reach* reach = nullptr;
    SoftBlocks* soft = nullptr;
  };
  // `wake` makes the device's thread call Poll; it is called from I/O completion threads.
  Evictor(Core* core, const Parts& parts, std::function<void()> wake);
  ~Evictor();

  // Starts taking these blocks off the GPU. They must be kResident or kCached, without a pin and without a
  // transfer. Their gates close here; the device's thread does the rest. `tier` is tried first for the bytes.
  // Any thread.
  void StartLocked(const TableLock& lock, const std::vector<Block*>& victims,
                   policy::PlanTier tier = policy::PlanTier::kHost);
  // Copies the block, which must be free to leave, out to that tier while it stays on the GPU. Its next
  // eviction then moves nothing, if the block has not changed. A launch that names it meanwhile takes the
  // copy back. Returns false, and does nothing, when there is no hash to check by, nothing to copy, or a part
  // of the block is reached. Any thread.
  bool CopyOutLocked(const TableLock& lock, Block* block, policy::PlanTier tier);
  // While true, no eviction begins to map, copy or unmap, because an audited launch runs. Any thread.
  void SuspendLocked(const TableLock& lock, bool on) {
    lock.Covers(core_->table);
    suspended_ = on;
  }

  // Advances every job as far as it can go without waiting. Returns true when something changed. Device's
  // thread.
  bool Poll();
  // Chunks that jobs under way will free, without those of canceled jobs.
  uint64_t chunks_coming(const TableLock& lock) const {
    lock.Covers(core_->table);
    return chunks_coming_;
  }
  // Part of these chunks: those of jobs that began before that time and still wait for uses of their blocks.
  // A stream may wait for something that a thread does later (cuStreamWaitValue), perhaps the thread that
  // waits for chunks. Device's thread.
  uint64_t ChunksStalledLocked(const TableLock& lock, int64_t began_before) const;
  bool idle() const { return jobs_.empty(); }
  // Whether a job is under way that may yet free chunks or capacity. Jobs of blocks that failed before do not
  // count. Device's thread.
  bool MayFreeLocked(const TableLock& lock) const;
  // Evictions that failed. The device's thread counts them under the lock; others read the count under the
  // lock.
  uint64_t failures() const { return failures_; }
  // The first failure since ForgetFailures. Device's thread.
  const absl::Status& first_failure() const { return first_failure_; }
  void ForgetFailures() { first_failure_ = absl::OkStatus(); }

 private:
  void StartJobLocked(const TableLock& lock, Block* block, policy::PlanTier tier, bool stays)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool TakeStarted();
  bool Advance(EvictJob* job);
  bool MayMoveLocked(const TableLock& lock, EvictJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool AloneIfExact(EvictJob* job);
  void AfterGatesClosed();
  bool UsesCompleted(EvictJob* job);
  void Commit(EvictJob* job);
  void PublishCopy(EvictJob* job);
  void FinishLocked(const TableLock& lock, EvictJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void RecordFailureLocked(const TableLock& lock, Block* block, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void Abandon(EvictJob* job);
  void LetGo(EvictJob* job);

  Core* const core_;
  Charges* const charges_;
  FreeAddresses* const addresses_;
  CleanCopies* const clean_;
  Reach* const reach_;
  SoftBlocks* const soft_;
  CopyOut copy_out_;

  std::vector<std::unique_ptr<EvictJob>> started_ ABSL_GUARDED_BY(core_->table.mu);  // since the last Poll
  uint64_t chunks_coming_ ABSL_GUARDED_BY(core_->table.mu) = 0;
  bool suspended_ ABSL_GUARDED_BY(core_->table.mu) = false;

  std::deque<std::unique_ptr<EvictJob>> jobs_;  // device's thread
  absl::Status first_failure_;                  // device's thread
  uint64_t failures_ = 0;                       // device's thread
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_EVICTOR_H_
