// CleanCopies: copies off the GPU of blocks that are on it, each with the hash of its bytes. A block that leaves and has
// not changed since is dropped without a transfer. Copies are worth room that nobody else wants: they are given up
// first when a tier runs short. CopyHabit: whether hashing a block pays, by what came of it before.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_CLEAN_COPIES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_CLEAN_COPIES_H_

#include <cstdint>
#include <vector>

#include "allocator/driver/content_hash.h"
#include "allocator/tier/host_pool.h"
#include "io/spill_store.h"

namespace spillway::allocator {

struct Block;

// Where the bytes of one spilled chunk lie.
struct ChunkHome {
  HostPiece piece;  // host tier when data is not null
  io::SlotId slot;  // else this slot, when on_disk
  bool on_disk = false;
};

// A block whose copy was of no use k times in a row is left alone for its next 2^k - 1 evictions, at most 63.
class CopyHabit {
 public:
  // At an eviction that writes: whether its bytes are to be hashed and the copy kept. Counts the eviction.
  bool WantsHash() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  // The copy was the block's content still.
  void NoteUnchanged() { misses_ = 0, skip_ = 0, proven_ = true; }
  // The block had changed, or was freed with its copy unused.
  void NoteUseless() {
    if (misses_ < 6) ++misses_;
    skip_ = static_cast<uint8_t>((1u << misses_) - 1);
    proven_ = false;
  }
  // The last copy was of use.
  bool proven() const { return proven_; }

 private:
  uint8_t misses_ = 0;
  uint8_t skip_ = 0;
  bool proven_ = false;
};

// Guarded by the lock of the table whose blocks these are; gives pieces and slots back under it.
class CleanCopies {
 public:
  // Either may be null.
  CleanCopies(HostPool* host, io::SpillStore* disk) : host_(host), disk_(disk) {}

  // The block, without a copy, has these bytes elsewhere.
  void Keep(Block* block, std::vector<ChunkHome> homes, const ContentHash& hash);
  // Takes the block's copy out; false when it has none.
  bool Take(Block* block, std::vector<ChunkHome>* homes, ContentHash* hash);
  // Gives the block's copy up, if it has one: it is freed.
  void Drop(Block* block);
  // Gives copies up until this many pieces of host memory, or slots, have come free, or none is left: those of no
  // proven use first, then the oldest.
  void ReclaimHost(uint64_t pieces) { Reclaim(pieces, 0); }
  void ReclaimDisk(uint64_t slots) { Reclaim(0, slots); }
  void ReclaimAll() { Reclaim(UINT64_MAX, UINT64_MAX); }
  void Release(std::vector<ChunkHome>* homes);

  uint64_t host_pieces() const { return host_pieces_; }
  uint64_t disk_slots() const { return disk_slots_; }
  size_t size() const { return kept_.size(); }

 private:
  void Reclaim(uint64_t pieces, uint64_t slots);
  void Count(const std::vector<ChunkHome>& homes, int64_t sign);

  HostPool* const host_;
  io::SpillStore* const disk_;
  std::vector<Block*> kept_;  // in the order of Keep
  uint64_t host_pieces_ = 0;
  uint64_t disk_slots_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_CLEAN_COPIES_H_
