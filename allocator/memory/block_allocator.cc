#include "allocator/memory/block_allocator.h"

#include "io/os/check.h"

namespace spillway::allocator {

BlockAllocator::List* BlockAllocator::Find(const Key& key) {
  if (latest_ == lists_.end() || latest_->first != key) latest_ = lists_.find(key);
  return latest_ == lists_.end() ? nullptr : &latest_->second;
}

void BlockAllocator::KeepNode(List::node_type node) {
  if (spare_nodes_.size() < kMaxSpareNodes) spare_nodes_.push_back(std::move(node));
}

void BlockAllocator::Add(CUstream stream, uint32_t chunks, uint64_t address, BlockId id) {
  const Key key{stream, chunks};
  if (Find(key) == nullptr) {
    if (lists_.size() >= kMaxLists)
      std::erase_if(lists_, [](const auto& entry) { return entry.second.empty(); });
    latest_ = lists_.try_emplace(key).first;
  }
  List& list = latest_->second;
  bool added = false;
  if (spare_nodes_.empty()) {
    added = list.emplace(address, id).second;
  } else {
    List::node_type node = std::move(spare_nodes_.back());
    spare_nodes_.pop_back();
    node.key() = address;
    node.mapped() = id;
    added = list.insert(std::move(node)).inserted;
  }
  SPILLWAY_CHECK(added);
  ++count_;
}

std::optional<BlockId> BlockAllocator::Take(CUstream stream, uint32_t chunks) {
  List* const list = Find({stream, chunks});
  if (list == nullptr || list->empty()) return std::nullopt;
  List::node_type lowest = list->extract(list->begin());
  const BlockId id = lowest.mapped();
  KeepNode(std::move(lowest));
  --count_;
  return id;
}

void BlockAllocator::Remove(CUstream stream, uint32_t chunks, uint64_t address) {
  List* const list = Find({stream, chunks});
  SPILLWAY_CHECK(list != nullptr);
  List::node_type node = list->extract(address);
  SPILLWAY_CHECK(!node.empty());
  KeepNode(std::move(node));
  --count_;
}

}  // namespace spillway::allocator
