// GpuBudget: how many bytes of chunks Spillway may hold on one device. Charge: whether a new block fits
// beside the live ones. Both are arithmetic only, with the formulas of docs/design.md, "Accounting"; nothing
// can fail. The residency module fills them in and asks them under the lock of the device's block table.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_
#define SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace spillway::allocator {

// All in bytes.
struct GpuBudget {
  uint64_t budget = 0;           // for our chunks and external memory together
  uint64_t external_share = 0;   // part of the budget that is kept for external memory
  uint64_t external = 0;         // external memory now
  uint64_t external_coming = 0;  // external allocations that are about to be made
  // What the device has memory for, beside all that uses it, where the driver was asked; else no limit.
  uint64_t device_limit = UINT64_MAX;

  // What the budget leaves for our chunks. The share of external memory stays free even while it is not used;
  // external memory beyond the share is taken from our chunks.
  uint64_t BudgetTarget() const {
    const uint64_t taken = std::max(external_share, external + external_coming);
    return budget > taken ? budget - taken : 0;
  }
  // The most that our chunks may hold.
  uint64_t ChunkTarget() const { return std::min(BudgetTarget(), device_limit); }
  // The limit of a device with so much free memory beside `ours`: the unused part of the share stays free.
  uint64_t LimitByFree(uint64_t ours, uint64_t free_bytes) const {
    const uint64_t unused = external_share - std::min(external_share, external);
    return ours + free_bytes - std::min(ours + free_bytes, unused);
  }
};

// The default share of external memory: 2 % of the budget, at least 16 MiB.
inline uint64_t DefaultExternalShare(uint64_t budget) { return std::max<uint64_t>(budget / 50, 16 << 20); }

// What charging compares for one device, in bytes. It goes by the live blocks of now, never by earlier ones.
struct Charge {
  uint64_t live = 0;           // live blocks, in whole chunks, the new one included
  uint64_t largest_block = 0;  // of the live blocks that may leave, the new one included
  uint64_t largest_set = 0;    // that a launch may still name, of live blocks that may leave
  uint64_t pinned = 0;         // live blocks with a long-term pin: they never leave
  uint64_t chunk_target = 0;   // GpuBudget::ChunkTarget

  bool FitsGpu() const { return live <= chunk_target; }
  // The largest launch that may still come. A launch may name any block alone.
  uint64_t LargestLaunch() const { return std::max(largest_set, largest_block); }
  // Whether the blocks of any launch fit the GPU together, beside the pinned ones.
  bool LaunchFits() const { return pinned + LargestLaunch() <= chunk_target; }
  // Bytes that must stay free, on the GPU or in the tiers, so that blocks can be exchanged: for the next
  // launch, and for one block that leaves whole and is in both places meanwhile. With both free somewhere,
  // either every block can leave, or the launch has its memory already.
  uint64_t Headroom() const { return LargestLaunch() + largest_block; }
  // Bytes of the tiers' capacity that this device must have promised (SharedCapacity). Nothing needs to be
  // exchanged while everything fits on the GPU.
  uint64_t BeyondGpu() const {
    const uint64_t needed = live + Headroom();
    return FitsGpu() || needed <= chunk_target ? 0 : needed - chunk_target;
  }
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_
