// Identity of a block across all devices, and the set of blocks that one launch touches.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ID_H_
#define SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ID_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::allocator {

inline constexpr int kMaxDevices = 8;

// Device in the top four bits, index into that device's block table below. Index 0 is never a block, so the
// zero value means "no block". Ids are reused after a free; a block's generation tells the uses apart.
class BlockId {
 public:
  constexpr BlockId() = default;
  constexpr BlockId(int device, uint32_t index) : value_((uint32_t(device) << kIndexBits) | index) {}
  static constexpr BlockId FromRaw(uint32_t raw) {
    BlockId id;
    id.value_ = raw;
    return id;
  }
  constexpr int device() const { return static_cast<int>(value_ >> kIndexBits); }
  constexpr uint32_t index() const { return value_ & ((1u << kIndexBits) - 1); }
  constexpr uint32_t raw() const { return value_; }
  constexpr bool valid() const { return index() != 0; }
  friend constexpr bool operator==(BlockId a, BlockId b) = default;
  friend constexpr bool operator<(BlockId a, BlockId b) { return a.value_ < b.value_; }

 private:
  static constexpr int kIndexBits = 28;
  uint32_t value_ = 0;
};

// The blocks that one launch, copy or memset names: no repeats, in order of first mention. Reused by its thread:
// Clear() keeps the memory, so the launch path allocates only while a set grows beyond every earlier one.
class AccessSet {
 public:
  AccessSet() { blocks_.reserve(256); }
  void Clear() { blocks_.clear(); }
  // Adds `id` unless it is there. Sets are small (a few pointers) or come from one struct whose neighbours repeat:
  // the last added is compared first.
  void Add(BlockId id) {
    for (auto it = blocks_.rbegin(); it != blocks_.rend(); ++it) {
      if (*it == id) return;
    }
    blocks_.push_back(id);
  }
  bool empty() const { return blocks_.empty(); }
  size_t size() const { return blocks_.size(); }
  std::vector<BlockId>::const_iterator begin() const { return blocks_.begin(); }
  std::vector<BlockId>::const_iterator end() const { return blocks_.end(); }

 private:
  std::vector<BlockId> blocks_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ID_H_
