// BlockSizes: how many blocks there are of each size, and the largest. Sizes are few and come again, so that one whose last
// block has gone keeps its place for a while.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_BLOCK_SIZES_H_
#define SPILLWAY_ALLOCATOR_MEMORY_BLOCK_SIZES_H_

#include <cstdint>
#include <functional>
#include <map>

#include "io/os/check.h"

namespace spillway::allocator {

// Sizes in chunks. Not thread-safe.
class BlockSizes {
 public:
  void Add(uint32_t chunks) {
    if (latest_ == sizes_.end() || latest_->first != chunks) {
      if (sizes_.size() > kMostSizes)
        std::erase_if(sizes_, [](const auto& entry) { return entry.second == 0; });
      latest_ = sizes_.try_emplace(chunks, 0).first;
    }
    ++latest_->second;
  }
  void Remove(uint32_t chunks) {
    if (latest_ == sizes_.end() || latest_->first != chunks) latest_ = sizes_.find(chunks);
    SPILLWAY_CHECK(latest_ != sizes_.end() && latest_->second > 0);
    --latest_->second;
  }
  // 0: there is no block.
  uint32_t Largest() const {
    for (const auto& [chunks, count] : sizes_) {
      if (count > 0) return chunks;
    }
    return 0;
  }

 private:
  static constexpr size_t kMostSizes = 256;
  std::map<uint32_t, uint64_t, std::greater<>> sizes_;
  std::map<uint32_t, uint64_t, std::greater<>>::iterator latest_ = sizes_.end();  // often the next one, too
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_BLOCK_SIZES_H_
