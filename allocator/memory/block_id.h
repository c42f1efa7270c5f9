// BlockId: a block's identity across all devices. AccessSet: the blocks that one launch may touch. Both are
// plain values without locks. Hooks fill an access set on the launching thread; residency reads it. Nothing
// here can fail.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ID_H_
#define SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ID_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::allocator {

inline constexpr int kMaxDevices = 8;

// The device is in the top four bits, and the index into that device's block table is below them. Index 0 is
// never a block, so the zero value means "no block". An id is used again after a free; a block's generation
// distinguishes the uses.
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

// The blocks that one launch, copy or memset names, without repeats, in the order of their first mention. A
// thread uses its set again and again: Clear() keeps the memory, so the launch path allocates only when a set
// is larger than all before it. Belongs to one thread.
class AccessSet {
 public:
  AccessSet() : blocks_(kFirstCapacity) {}
  // Copied but never moved: Add relies on memory for at least one block.
  AccessSet(const AccessSet&) = default;
  AccessSet& operator=(const AccessSet&) = default;

  void Clear() { size_ = 0; }
  // Adds `id` unless it is in the set. The table `places_` remembers the place at which a block with these
  // low bits was put last. This may have happened in an earlier set, so an entry counts only when such a
  // block lies at that place now. The table therefore never needs to be cleared.
  void Add(BlockId id) {
    const uint32_t place = places_[id.raw() % kPlaces];
    const uint32_t there = blocks_[place].raw();
    // This is a single branch that is seldom taken, because entries left by earlier sets cannot be predicted.
    const bool same_place = (place < size_) & ((there ^ id.raw()) % kPlaces == 0);
    if (__builtin_expect(same_place, 0) && (there == id.raw() || Contains(id))) return;
    AddNew(id);
  }
  // Adds `id`, which is known not to be there.
  void AddNew(BlockId id) {
    if (__builtin_expect(size_ == blocks_.size(), 0)) blocks_.resize(2 * size_);
    places_[id.raw() % kPlaces] = static_cast<uint32_t>(size_);
    blocks_[size_++] = id;
  }
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  const BlockId* begin() const { return blocks_.data(); }
  const BlockId* end() const { return blocks_.data() + size_; }

 private:
  static constexpr size_t kFirstCapacity = 256;
  static constexpr uint32_t kPlaces = 1024;

  bool Contains(BlockId id) const {
    for (const BlockId block : *this) {
      if (block == id) return true;
    }
    return false;
  }

  size_t size_ = 0;
  std::vector<BlockId> blocks_;    // the first size_ count; never shrinks
  uint32_t places_[kPlaces] = {};  // by the low bits of an id; always less than blocks_.size()
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ID_H_
