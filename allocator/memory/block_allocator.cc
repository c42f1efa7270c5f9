#include "allocator/memory/block_allocator.h"

#include "io/os/check.h"

namespace spillway::allocator {

void BlockAllocator::Add(CUstream stream, uint32_t chunks, uint64_t address, BlockId id) {
  const bool added = lists_[{stream, chunks}].emplace(address, id).second;
  SPILLWAY_CHECK(added);
  ++count_;
}

std::optional<BlockId> BlockAllocator::Take(CUstream stream, uint32_t chunks) {
  const auto list = lists_.find({stream, chunks});
  if (list == lists_.end()) return std::nullopt;
  const auto lowest = list->second.begin();
  const BlockId id = lowest->second;
  list->second.erase(lowest);
  if (list->second.empty()) lists_.erase(list);
  --count_;
  return id;
}

void BlockAllocator::Remove(CUstream stream, uint32_t chunks, uint64_t address) {
  const auto list = lists_.find({stream, chunks});
  SPILLWAY_CHECK(list != lists_.end() && list->second.erase(address) == 1);
  if (list->second.empty()) lists_.erase(list);
  --count_;
}

}  // namespace spillway::allocator
