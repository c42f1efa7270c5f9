// LaunchSets: the largest sets of blocks that launches have named, so that room for them is kept. Each counts with those of
// its blocks that are live now: a freed block counts no more, and again once its address has been handed out anew, for
// equal steps get equal addresses. What is remembered is thus never larger than what a launch may still name.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_LAUNCH_SETS_H_
#define SPILLWAY_ALLOCATOR_MEMORY_LAUNCH_SETS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/memory/block_id.h"

namespace spillway::allocator {

// Guarded by the lock of the table whose blocks these are, but for largest_bytes.
class LaunchSets {
 public:
  static constexpr int kSets = 64;  // one bit each of a word

  // A block as a set sees it.
  struct Member {
    BlockId id;
    uint64_t bytes = 0;  // in whole chunks
    bool live = false;
    bool held = false;  // on the GPU, whatever happens
  };

  // A launch has named these blocks; only live ones count. Takes the place of the smallest set when all are taken.
  void Note(const std::vector<Member>& blocks);

  // The block is handed out; is freed; is held from now on; is not held any more; its record goes. Each right after the
  // fact. `bytes` are those of the block, in whole chunks.
  void OnHandOut(BlockId id, uint64_t bytes) { Count(id, static_cast<int64_t>(bytes)); }
  void OnFree(BlockId id, uint64_t bytes) { Count(id, -static_cast<int64_t>(bytes)); }
  void OnHeld(BlockId id, uint64_t bytes) { CountHeld(id, static_cast<int64_t>(bytes)); }
  void OnHoldEnded(BlockId id, uint64_t bytes) { CountHeld(id, -static_cast<int64_t>(bytes)); }
  void OnDestroy(BlockId id, uint64_t bytes);
  // Gives up the sets of which no block is live.
  void ForgetDead();

  // Live bytes of the largest set. Any thread, no lock.
  uint64_t largest_bytes() const { return largest_.load(std::memory_order_relaxed); }
  // The most that it ever was, for reports.
  uint64_t peak_bytes() const { return peak_; }
  // The same without blocks that are held on the GPU anyway.
  uint64_t largest_movable_bytes() const;
  // Aborts unless all sums are those of the blocks, which `look` tells.
  void CheckInvariants(absl::FunctionRef<Member(BlockId)> look) const;

 private:
  struct Set {
    std::vector<BlockId> blocks;  // empty: nobody's
    uint64_t all_bytes = 0;       // of all of them, live or not
    uint64_t live_bytes = 0;
    uint64_t held_bytes = 0;  // of live_bytes
  };

  // The sets that name the block, one bit each.
  uint64_t BitsOf(BlockId id) const { return id.index() < bits_.size() ? bits_[id.index()] : 0; }
  void Count(BlockId id, int64_t bytes);
  void CountHeld(BlockId id, int64_t bytes);
  void Clear(int place);
  void FindLargest();

  std::array<Set, kSets> sets_;
  std::vector<uint64_t> bits_;  // by BlockId::index; grows with what Note is given
  uint64_t peak_ = 0;
  std::atomic<uint64_t> largest_{0};  // a hint for launching threads: pairs with nothing
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_LAUNCH_SETS_H_
