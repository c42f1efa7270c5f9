// GpuBudget: how many bytes of chunks Spillway may have on one device. Charge: whether a new block fits
// beside the live ones. Both are arithmetic only, with the formulas of docs/design.md, "Accounting"; nothing
// can fail. The residency module fills them in and asks them under the lock of the device's block table.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_
#define SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace spillway::allocator {

// All values are in bytes. Two parts of the memory stay free while nobody needs them: the unused share of
// external memory, and the reserve. They are lent, in this order, when a block or a launch would be refused
// without them.
struct GpuBudget {
  uint64_t budget = 0;           // limit for our chunks and external memory together
  uint64_t external_share = 0;   // part of the budget that is kept for external memory
  uint64_t external = 0;         // present external memory
  uint64_t external_coming = 0;  // external allocations that are about to be made
  uint64_t reserve = 0;          // beyond the budget: left to the driver and to other processes
  uint64_t cap = UINT64_MAX;     // the application's own limit on the budget
  uint64_t share = UINT64_MAX;   // the limit that jobs sharing the device set
  uint64_t lent = 0;             // at most Lendable(); a larger value counts as that
  // Limit on our chunks by the free memory of the device, if the driver was asked; else none.
  uint64_t device_limit = UINT64_MAX;

  uint64_t Limit() const { return std::min(cap, share); }
  uint64_t Budget() const { return std::min(budget, Limit()); }
  uint64_t Reserve() const { return std::min(reserve, Limit() - Budget()); }
  uint64_t UnusedShare() const {
    return external_share - std::min(external_share, external + external_coming);
  }
  uint64_t Lendable() const { return UnusedShare() + Reserve(); }
  uint64_t LentReserve() const { return std::min(lent - std::min(lent, UnusedShare()), Reserve()); }

  // Bytes that the budget leaves for our chunks. External memory beyond its share is taken from our chunks.
  uint64_t BudgetTarget() const {
    const uint64_t all = Budget() + Reserve();
    const uint64_t taken = external + external_coming + Lendable() - std::min(lent, Lendable());
    return all > taken ? all - taken : 0;
  }
  // Bytes that the device leaves for our chunks.
  uint64_t DeviceTarget() const {
    const uint64_t kept = UnusedShare() - std::min(lent, UnusedShare());
    return device_limit > kept ? device_limit - kept : 0;
  }
  // Upper limit of our chunks.
  uint64_t ChunkTarget() const { return std::min(BudgetTarget(), DeviceTarget()); }
  // The same limit with everything lent.
  uint64_t MostTarget() const {
    GpuBudget all = *this;
    all.lent = Lendable();
    return all.ChunkTarget();
  }
  // The least that must be lent for chunks of `bytes`; UINT64_MAX when no loan suffices.
  uint64_t LentFor(uint64_t bytes) const {
    const auto above = [](uint64_t need, uint64_t have) { return need > have ? need - have : 0; };
    if (bytes > MostTarget()) return UINT64_MAX;
    const uint64_t beside = external + external_coming + Lendable();
    return std::max(above(bytes + beside, Budget() + Reserve()), above(bytes + UnusedShare(), device_limit));
  }
  // The value of `share` at which our chunks may have `bytes`: with nothing lent, and the least, with
  // everything lent.
  uint64_t ShareFor(uint64_t bytes) const {
    return bytes + std::max(external + external_coming, external_share);
  }
  uint64_t LeastShareFor(uint64_t bytes) const { return bytes + external + external_coming; }
  // Sets the external memory. An external allocation takes its share back: the part of the share that was
  // lent is no longer lent, and is not taken from the reserve instead.
  void SetExternal(uint64_t now, uint64_t coming) {
    const uint64_t of_reserve = lent - std::min(lent, UnusedShare());
    const uint64_t of_share = lent - of_reserve;
    external = now;
    external_coming = coming;
    lent = std::min(of_share, UnusedShare()) + of_reserve;
  }
};

// The default share of external memory: 2 % of the budget, at least 16 MiB.
inline uint64_t DefaultExternalShare(uint64_t budget) { return std::max<uint64_t>(budget / 50, 16 << 20); }

// The sums that charging compares for one device, in bytes. They describe the blocks that are live now, never
// earlier ones.
struct Charge {
  uint64_t live = 0;           // live blocks, in whole chunks, the new one included
  uint64_t largest_block = 0;  // largest live block that may leave, the new one included
  uint64_t largest_set = 0;    // largest set that a launch may still name, of live blocks that may leave
  uint64_t pinned = 0;         // live blocks with a long-term pin: they never leave
  uint64_t paused = 0;         // live blocks that are paused, and have no place on the GPU
  uint64_t chunk_target = 0;   // GpuBudget::ChunkTarget
  uint64_t reachable = 0;  // of a launch and pinned blocks, may be in host memory (Charges::reachable_bytes)

  // The same charge with another target.
  Charge With(uint64_t target) const {
    Charge other = *this;
    other.chunk_target = target;
    return other;
  }
  bool FitsGpu() const { return live <= chunk_target; }
  // The largest launch that may still come. A launch may name any block alone.
  uint64_t LargestLaunch() const { return std::max(largest_set, largest_block); }
  // Whether the blocks of any launch fit the GPU together, beside the pinned blocks, counting the bytes that
  // kernels reach in host memory.
  bool LaunchFits() const { return pinned + LargestLaunch() <= chunk_target + reachable; }
  // Bytes that the GPU must have for LaunchFits.
  uint64_t LeastOnGpu() const {
    const uint64_t all = pinned + LargestLaunch();
    return all - std::min(all, reachable);
  }
  // Bytes that must stay free, on the GPU or in the tiers, so that blocks can be exchanged. They are the next
  // launch, and one block that leaves as a whole and is in both places meanwhile. If both are free somewhere,
  // either every block can leave, or the launch has its memory already. Bytes that are reached are not
  // exchanged.
  uint64_t Headroom() const {
    return reachable == 0 ? LargestLaunch() + largest_block
                          : std::min(LargestLaunch(), chunk_target) + std::min(largest_block, chunk_target);
  }
  // Capacity of the tiers, in bytes, that this device must have promised (SharedCapacity). Nothing needs to
  // be exchanged while everything fits the GPU. A paused block has its place in the tiers now, and comes back
  // at the resume. Charging therefore also counts the blocks as they will be after the resume, so that other
  // allocations do not take the memory that is needed then.
  uint64_t BeyondGpu() const { return std::max(paused + BeyondGpuOf(live - paused), BeyondGpuOf(live)); }
  // The same for `bytes` of blocks, none of them paused.
  uint64_t BeyondGpuOf(uint64_t bytes) const {
    const uint64_t needed = bytes + Headroom();
    return bytes <= chunk_target || needed <= chunk_target ? 0 : needed - chunk_target;
  }
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_GPU_BUDGET_H_
