// LaunchSets: the largest sets of blocks that launches have named, so that charging keeps memory free for
// them. Each set counts its blocks that are live now. A freed block does not count until its address is
// handed out again, as equal iterations get equal addresses. The remembered sets are thus never larger than
// the sets that launches may still name. Residency calls this for each launch that names much, and for each
// change of a block, under the lock of the block table. Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_LAUNCH_SETS_H_
#define SPILLWAY_ALLOCATOR_MEMORY_LAUNCH_SETS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/memory/block_id.h"

namespace spillway::allocator {

// Not thread-safe, except for largest_bytes: the lock of the block table guards it.
class LaunchSets {
 public:
  static constexpr int kSets = 64;  // a bit of one word for each

  // A block as a set counts it.
  struct Member {
    BlockId id;
    uint64_t bytes = 0;  // in whole chunks
    bool live = false;
    bool pinned = false;  // on the GPU, whatever happens
  };

  // Records a launch that has named these blocks, of which only the live ones count. Replaces the smallest
  // set when all are taken.
  void Record(const std::vector<Member>& blocks);

  // Each is called right after a block was handed out, was freed, got its first long-term pin, lost its last
  // one, or when its record is destroyed. `bytes` is the block's size, in whole chunks.
  void OnHandOut(BlockId id, uint64_t bytes) {
    if (BitsOf(id) != 0) Count(id, static_cast<int64_t>(bytes));
  }
  void OnFree(BlockId id, uint64_t bytes) {
    if (BitsOf(id) != 0) Count(id, -static_cast<int64_t>(bytes));
  }
  void OnPinned(BlockId id, uint64_t bytes) { CountPinned(id, static_cast<int64_t>(bytes)); }
  void OnUnpinned(BlockId id, uint64_t bytes) { CountPinned(id, -static_cast<int64_t>(bytes)); }
  void OnDestroy(BlockId id, uint64_t bytes);
  // Forgets the sets that have no live block.
  void ForgetDead();

  // Live bytes of the largest set. Any thread; takes no lock.
  uint64_t largest_bytes() const { return largest_.load(std::memory_order_relaxed); }
  // The largest value of largest_bytes so far, for reports.
  uint64_t peak_bytes() const { return peak_; }
  // Live bytes of the largest set without blocks that are pinned on the GPU anyway.
  uint64_t largest_movable_bytes() const;
  // Aborts unless all sums agree with the blocks, which `look` describes.
  void CheckInvariants(absl::FunctionRef<Member(BlockId)> look) const;

 private:
  struct Set {
    std::vector<BlockId> blocks;  // empty: the set is not in use
    uint64_t all_bytes = 0;       // of all of them, live or not
    uint64_t live_bytes = 0;
    uint64_t pinned_bytes = 0;  // of live_bytes
  };

  // The sets that name the block, one bit for each.
  uint64_t BitsOf(BlockId id) const { return id.index() < bits_.size() ? bits_[id.index()] : 0; }
  void Count(BlockId id, int64_t bytes);
  void CountPinned(BlockId id, int64_t bytes);
  void Clear(int place);
  void FindLargest();

  std::array<Set, kSets> sets_;
  std::vector<uint64_t> bits_;  // by BlockId::index; grows as Record meets larger indices
  uint64_t peak_ = 0;
  std::atomic<uint64_t> largest_{0};  // a hint for launching threads: pairs with nothing
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_LAUNCH_SETS_H_
