// GpuBudget: how many bytes of chunks we may hold, and whether a new block may be promised. Arithmetic only; the
// formulas are those of the design, "Budget" and "Charging".

#ifndef SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_
#define SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace spillway::allocator {

// All in bytes.
struct GpuBudget {
  uint64_t budget = 0;        // our chunks and others
  uint64_t others_share = 0;  // of the budget, kept for others
  uint64_t others = 0;        // what others hold now
  uint64_t coming = 0;        // what others are about to allocate

  // Most that our chunks may hold: others' share is theirs even while unused, and what they hold beyond it is ours to
  // give up.
  uint64_t ChunkTarget() const {
    const uint64_t taken = std::max(others_share, others + coming);
    return budget > taken ? budget - taken : 0;
  }
};

// The default share of others: 2 % of the budget, at least 16 MiB.
inline uint64_t DefaultOthersShare(uint64_t budget) { return std::max<uint64_t>(budget / 50, 16 << 20); }

// What charging compares, for one device: of what is live, never of what once was.
struct Charge {
  uint64_t live = 0;           // live blocks, in whole chunks, the new one included
  uint64_t largest_block = 0;  // of the live blocks that may leave, the new one included
  uint64_t largest_set = 0;    // that a launch may still name, of live blocks that may leave
  uint64_t held = 0;           // live blocks that never leave
  uint64_t chunk_target = 0;   // GpuBudget::ChunkTarget

  bool FitsGpu() const { return live <= chunk_target; }
  // A launch may name any block alone.
  uint64_t LargestLaunch() const { return std::max(largest_set, largest_block); }
  // On the GPU: whatever a launch names lies there together, beside what never leaves.
  bool LaunchFits() const { return held + LargestLaunch() <= chunk_target; }
  // Room that must stay free, here or in the tiers, so that blocks can be exchanged: for the launch that is to come, and for
  // one block that leaves whole, which is in both places meanwhile. With both somewhere, either every block can leave
  // or the launch has room already.
  uint64_t Headroom() const { return LargestLaunch() + largest_block; }
  // Bytes that must find room in the tiers, which the devices of a process share (SpillRoom). Nothing needs to be
  // exchanged while everything fits on the GPU.
  uint64_t BeyondGpu() const {
    const uint64_t needed = live + Headroom();
    return FitsGpu() || needed <= chunk_target ? 0 : needed - chunk_target;
  }
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_
