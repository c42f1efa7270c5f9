// TorchMemory: the layout of a job's blocks by PyTorch's own caching allocator. Sizes are rounded to 512
// bytes; small blocks lie in segments of 2 MiB, those below 10 MiB in segments of 20 MiB, larger ones in
// segments of their own. Freed blocks are used again, the best fit first, and no memory goes back to the
// driver. It gives the figures of torch.cuda.max_memory_allocated() and max_memory_reserved(). The rules are
// those of c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11 with its default settings and one stream. Pure;
// one thread; no call fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_TORCH_MEMORY_H_
#define SPILLWAY_POLICY_ESTIMATE_TORCH_MEMORY_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "policy/model/units.h"

namespace spillway::policy {

// kSmallSize of that file: blocks up to this share segments, stay with PyTorch's allocator and never move.
inline constexpr Bytes kSmallBlock = 1 << 20;

class TorchMemory {
 public:
  using Address = uint64_t;

  // Allocates `bytes`, more than 0. Returns the block's address, for Free.
  Address Allocate(Bytes bytes);
  // The block must be allocated.
  void Free(Address address);

  // Returns how much of the allocated bytes the block at this address takes.
  Bytes SizeOf(Address address) const { return blocks_.at(address).bytes; }
  Bytes allocated() const { return allocated_; }
  Bytes peak_allocated() const { return peak_allocated_; }
  Bytes peak_reserved() const { return reserved_; }  // it never falls

 private:
  struct Block {
    Bytes bytes = 0;
    bool small = false, free = false;
    bool first = false;  // of its segment
  };
  using FreeBlocks = std::set<std::pair<Bytes, Address>>;  // by size, then address

  Address NewSegment(Bytes rounded, bool small);
  // Joins two blocks; both are free or about to be.
  void Join(Address left, Address right);

  std::map<Address, Block> blocks_;
  FreeBlocks free_small_, free_large_;
  Address next_ = 1ull << 40;  // segments lie apart, so their blocks are never joined
  Bytes allocated_ = 0, peak_allocated_ = 0, reserved_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_TORCH_MEMORY_H_
