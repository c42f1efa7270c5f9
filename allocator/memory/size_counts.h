// SizeCounts: how many blocks there are of each size, and the largest size. The block table keeps one for the
// blocks without a long-term pin, under its lock, since charging asks for the largest. Sizes are few and come
// again: a size whose last block has gone keeps its entry until there are many. Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_SIZE_COUNTS_H_
#define SPILLWAY_ALLOCATOR_MEMORY_SIZE_COUNTS_H_

#include <cstdint>
#include <functional>
#include <map>

#include "io/os/check.h"

namespace spillway::allocator {

// Sizes in chunks. Not thread-safe: guarded by the owner's lock.
class SizeCounts {
 public:
  // A block of that size is there from now on.
  void Add(uint32_t chunks) {
    if (latest_ == sizes_.end() || latest_->first != chunks) {
      if (sizes_.size() > kMostSizes)
        std::erase_if(sizes_, [](const auto& entry) { return entry.second == 0; });
      latest_ = sizes_.try_emplace(chunks, 0).first;
    }
    ++latest_->second;
  }
  // A block of that size is gone. It must have been there (checked).
  void Remove(uint32_t chunks) {
    if (latest_ == sizes_.end() || latest_->first != chunks) latest_ = sizes_.find(chunks);
    SPILLWAY_CHECK(latest_ != sizes_.end() && latest_->second > 0);
    --latest_->second;
  }
  // The largest size that has a block; 0 when there is no block. Passes over the larger sizes whose blocks
  // have gone, of which there are few.
  uint32_t Largest() const {
    for (const auto& [chunks, count] : sizes_) {
      if (count > 0) return chunks;
    }
    return 0;
  }

 private:
  static constexpr size_t kMostSizes = 256;  // beyond, those without a block are given up
  std::map<uint32_t, uint64_t, std::greater<>> sizes_;
  std::map<uint32_t, uint64_t, std::greater<>>::iterator latest_ =
      sizes_.end();  // the next block often has the same size
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_SIZE_COUNTS_H_
