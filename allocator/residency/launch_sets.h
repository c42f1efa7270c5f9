// LaunchSets: the largest sets of blocks that launches have named, so that room for them is kept. Each counts with those of
// its blocks that are live now: a freed block counts no more, and again once its address has been handed out anew, for
// equal steps get equal addresses. What is remembered is thus never larger than what a launch may still name.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_SETS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_SETS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace spillway::allocator {

struct Block;

// Guarded by the lock of the table whose blocks these are, but for largest_bytes.
class LaunchSets {
 public:
  static constexpr int kSets = 64;  // one bit each of Block::launch_sets

  // A launch has named these blocks, which are live. Takes the place of the smallest set when all are taken.
  void Note(const std::vector<Block*>& blocks);

  // The block is handed out; is freed; is held from now on; is not held any more; its record goes. Each right after the
  // fact, with Block::live and Block::held_reasons as they are then.
  void OnHandOut(Block* block) { Count(block, 1); }
  void OnFree(Block* block) { Count(block, -1); }
  void OnHeld(Block* block) { CountHeld(block, 1); }
  void OnHoldEnded(Block* block) { CountHeld(block, -1); }
  void OnDestroy(Block* block);
  // Gives up the sets of which no block is live.
  void ForgetDead();

  // Live bytes of the largest set. Any thread, no lock.
  uint64_t largest_bytes() const { return largest_.load(std::memory_order_relaxed); }
  // The most that it ever was, for reports.
  uint64_t peak_bytes() const { return peak_; }
  // The same without blocks that are held on the GPU anyway.
  uint64_t largest_movable_bytes() const;
  // Aborts unless all sums are those of the blocks.
  void CheckInvariants() const;

 private:
  struct Set {
    std::vector<Block*> blocks;  // empty: nobody's
    uint64_t all_bytes = 0;      // of all of them, live or not
    uint64_t live_bytes = 0;
    uint64_t held_bytes = 0;  // of live_bytes
  };

  void Count(Block* block, int sign);
  void CountHeld(Block* block, int sign);
  void Clear(int place);
  void FindLargest();

  std::array<Set, kSets> sets_;
  uint64_t peak_ = 0;
  std::atomic<uint64_t> largest_{0};  // a hint for launching threads: pairs with nothing
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCH_SETS_H_
