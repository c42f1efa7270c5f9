// CleanCopies: copies off the GPU of blocks that are on it, each with the hash of its bytes. A block that leaves and has
// not changed since is dropped without a transfer. Copies are worth room that nobody else wants: they are given up
// first when a tier runs short.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CLEAN_COPIES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CLEAN_COPIES_H_

#include <cstdint>
#include <vector>

#include "allocator/driver/content_hash.h"
#include "allocator/residency/state/block_table.h"
#include "allocator/tier/host_pool.h"
#include "io/spill_store.h"

namespace spillway::allocator {

// Guarded by the lock of the table whose blocks these are; gives pieces and slots back under it.
class CleanCopies {
 public:
  // Either may be null.
  CleanCopies(HostPool* host, io::SpillStore* disk) : host_(host), disk_(disk) {}

  // The block, without a copy, has these bytes elsewhere.
  void Keep(const TableLock& lock, Block* block, std::vector<ChunkHome> homes, const ContentHash& hash);
  // Takes the block's copy out; false when it has none.
  bool Take(const TableLock& lock, Block* block, std::vector<ChunkHome>* homes, ContentHash* hash);
  // Gives the block's copy up, if it has one: it is freed.
  void Drop(const TableLock& lock, Block* block);
  // Gives copies up until this many pieces of host memory, or slots, have come free, or none is left: those of no
  // proven use first, then the oldest.
  void ReclaimHost(const TableLock& lock, uint64_t pieces) { Reclaim(lock, pieces, 0); }
  void ReclaimDisk(const TableLock& lock, uint64_t slots) { Reclaim(lock, 0, slots); }
  void ReclaimAll(const TableLock& lock) { Reclaim(lock, UINT64_MAX, UINT64_MAX); }
  // Gives pieces and slots back.
  void Release(const TableLock& lock, std::vector<ChunkHome>* homes);

  uint64_t host_pieces(const TableLock&) const { return host_pieces_; }
  uint64_t disk_slots(const TableLock&) const { return disk_slots_; }
  size_t size(const TableLock&) const { return kept_.size(); }

 private:
  void Reclaim(const TableLock& lock, uint64_t pieces, uint64_t slots);
  void Count(const std::vector<ChunkHome>& homes, int64_t sign);

  HostPool* const host_;
  io::SpillStore* const disk_;
  std::vector<Block*> kept_;  // in the order of Keep
  uint64_t host_pieces_ = 0;
  uint64_t disk_slots_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CLEAN_COPIES_H_
