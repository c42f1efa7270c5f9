// SizeCounts: the number of blocks of each size, and the largest size. The block table keeps one for the
// blocks without a long-term pin, under its lock, since charging asks for the largest of them. Jobs use few
// sizes, again and again: a size whose last block has gone keeps its entry until there are many entries.
// Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_SIZE_COUNTS_H_
#define SPILLWAY_ALLOCATOR_MEMORY_SIZE_COUNTS_H_

#include <cstdint>
#include <functional>
#include <map>

#include "io/os/check.h"

namespace spillway::allocator {

// Sizes are in chunks. Not thread-safe; the owner's lock guards it.
class SizeCounts {
 public:
  // Counts a new block of that size.
  void Add(uint32_t chunks) {
    if (latest_ == sizes_.end() || latest_->first != chunks) {
      if (sizes_.size() > kMaxSizes)
        std::erase_if(sizes_, [](const auto& entry) { return entry.second == 0; });
      latest_ = sizes_.try_emplace(chunks, 0).first;
    }
    ++latest_->second;
  }
  // Counts a block of that size as gone. It must have been counted (checked).
  void Remove(uint32_t chunks) {
    if (latest_ == sizes_.end() || latest_->first != chunks) latest_ = sizes_.find(chunks);
    SPILLWAY_CHECK(latest_ != sizes_.end() && latest_->second > 0);
    --latest_->second;
  }
  // The largest size that has a block; 0 when there is no block. Skips the larger sizes whose blocks have
  // gone, of which there are few.
  uint32_t Largest() const {
    for (const auto& [chunks, count] : sizes_) {
      if (count > 0) return chunks;
    }
    return 0;
  }

 private:
  static constexpr size_t kMaxSizes = 256;  // beyond this number, sizes without a block are erased
  std::map<uint32_t, uint64_t, std::greater<>> sizes_;
  std::map<uint32_t, uint64_t, std::greater<>>::iterator latest_ =
      sizes_.end();  // the next block often has the same size
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_SIZE_COUNTS_H_
