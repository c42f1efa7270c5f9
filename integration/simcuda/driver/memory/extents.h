// Free ranges of one stretch of numbers: take the first that fits, give back, merge neighbors. The address
// space hands out device addresses by it, and the memory pool the homes of handles. Not thread-safe; its
// owner locks. No call fails except a Take without a place left.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_EXTENTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_EXTENTS_H_

#include <cstdint>
#include <iterator>
#include <map>

namespace simcuda {

class Extents {
 public:
  // Makes all of [start, start + size) free, and nothing else. `start` is not 0, which is Take's answer when
  // it fails.
  void Reset(uint64_t start, uint64_t size) {
    free_.clear();
    free_[start] = size;
  }

  // Returns the start of a range of `size` at a multiple of `alignment` (a power of two), the lowest that
  // fits; 0 if none is left.
  uint64_t Take(uint64_t size, uint64_t alignment) {
    for (const auto& [start, length] : free_) {
      const uint64_t aligned = (start + alignment - 1) & ~(alignment - 1);
      if (aligned - start + size <= length && TakeAt(aligned, size)) return aligned;
    }
    return 0;
  }

  // Takes exactly [start, start + size). Returns false if part of it is taken; nothing is taken then.
  bool TakeAt(uint64_t start, uint64_t size) {
    auto it = free_.upper_bound(start);
    if (it == free_.begin()) return false;
    --it;  // the only free range that may contain it
    const uint64_t free_start = it->first;
    const uint64_t free_end = it->first + it->second;
    if (start + size > free_end) return false;
    free_.erase(it);
    if (start > free_start) free_[free_start] = start - free_start;
    if (free_end > start + size) free_[start + size] = free_end - (start + size);
    return true;
  }

  // Gives back what Take or TakeAt took, whole or in part. The caller must know that it is not free; this is
  // not checked.
  void Give(uint64_t start, uint64_t size) {
    auto next = free_.lower_bound(start);
    if (next != free_.end() && next->first == start + size) {
      size += next->second;
      next = free_.erase(next);  // joined to the range above; below: to that before
    }
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == start) {
        before->second += size;
        return;
      }
    }
    free_[start] = size;
  }

 private:
  std::map<uint64_t, uint64_t> free_;  // start -> length, no two adjacent
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_EXTENTS_H_
