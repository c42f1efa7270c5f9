// CleanCopies: copies off the GPU of blocks that are on it, each with the hash of its bytes. An eviction
// drops a block that has not changed since its copy without a transfer. Copies use capacity that nothing else
// needs now; they are given up first when a tier runs short. Evictor, CopyOut, Faulter and Allocations call
// it, on any thread. Nothing here fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CLEAN_COPIES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CLEAN_COPIES_H_

#include <cstdint>
#include <vector>

#include "allocator/driver/content_hash.h"
#include "allocator/residency/state/block_table.h"
#include "allocator/tier/host_pool.h"
#include "io/store/spill_store.h"

namespace spillway::allocator {

// All methods run under the lock of the blocks' table, and give host buffers and slots back under it.
class CleanCopies {
 public:
  // `host` or `disk` may be null.
  CleanCopies(const BlockTable* table, HostPool* host, io::SpillStore* disk)
      : table_(table), host_(host), disk_(disk) {}

  // Keeps `homes` as the copy of a block that has none; `hash` is that of the bytes there.
  void Keep(const TableLock& lock, Block* block, std::vector<ExtentHome> homes, const ContentHash& hash);
  // Takes the block's copy out; returns false when it has none.
  bool Take(const TableLock& lock, Block* block, std::vector<ExtentHome>* homes, ContentHash* hash);
  // Gives the block's copy up, if it has one, because the block is being freed.
  void Drop(const TableLock& lock, Block* block);
  // Give copies up until this many host buffers, or slots, have come free, or none is left: first the copies
  // that were of no use so far, then the oldest.
  void ReclaimHost(const TableLock& lock, uint64_t buffers) { Reclaim(lock, buffers, 0); }
  void ReclaimDisk(const TableLock& lock, uint64_t slots) { Reclaim(lock, 0, slots); }
  void ReclaimAll(const TableLock& lock) { Reclaim(lock, UINT64_MAX, UINT64_MAX); }
  // Gives the buffers and slots of `homes` back.
  void Release(const TableLock& lock, std::vector<ExtentHome>* homes);

  uint64_t host_buffers(const TableLock& lock) const {
    lock.Covers(*table_);
    return host_buffers_;
  }
  uint64_t disk_slots(const TableLock& lock) const {
    lock.Covers(*table_);
    return disk_slots_;
  }
  size_t size(const TableLock& lock) const {
    lock.Covers(*table_);
    return kept_.size();
  }

 private:
  void Reclaim(const TableLock& lock, uint64_t buffers, uint64_t slots);
  void Count(const std::vector<ExtentHome>& homes, int64_t sign) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);

  const BlockTable* const table_;
  HostPool* const host_;
  io::SpillStore* const disk_;
  std::vector<Block*> kept_ ABSL_GUARDED_BY(table_->mu);  // in the order of Keep
  uint64_t host_buffers_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t disk_slots_ ABSL_GUARDED_BY(table_->mu) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CLEAN_COPIES_H_
