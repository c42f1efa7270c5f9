// BlockAllocator: the addresses of freed blocks, which may be handed out again. A freed block keeps its
// address, with or without chunks behind it, for the next block of the same number of chunks on the same
// stream. The lowest such address is always taken. A job that allocates and frees alike in each iteration
// thus gets the same addresses in each iteration, whatever memory pressure did meanwhile, and its launches
// can be recognized.
//
// Residency calls it for each allocation and free, under the lock of the block table. Take finds nothing when
// no address fits; nothing else can fail. Jobs use few sizes, again and again. A list without addresses is
// therefore kept until there are many lists, and the node of an address that was taken is used again. An
// allocation and a free that reuse an address thus call no malloc.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ALLOCATOR_H_
#define SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/driver/cuda_driver.h"
#include "allocator/memory/block_id.h"

namespace spillway::allocator {

// Not thread-safe; the owner's lock guards it.
class BlockAllocator {
 public:
  // Enters a free block's address, which must not be in the list.
  void Add(CUstream stream, uint32_t chunks, uint64_t address, BlockId id);
  // Takes the lowest address of that size and stream out of the list; returns nothing when there is none.
  std::optional<BlockId> Take(CUstream stream, uint32_t chunks);
  // Takes one address out of the list. The address must be there.
  void Remove(CUstream stream, uint32_t chunks, uint64_t address);
  size_t size() const { return count_; }  // addresses in the list

 private:
  using Key = std::pair<CUstream, uint32_t>;  // stream, chunks
  using List = std::map<uint64_t, BlockId>;   // by address
  static constexpr size_t kMaxLists = 256;
  static constexpr size_t kMaxSpareNodes = 64;

  // The list of that key; null when there is none.
  List* Find(const Key& key);
  void KeepNode(List::node_type node);

  std::map<Key, List> lists_;
  std::map<Key, List>::iterator latest_ = lists_.end();  // the next call often has the same key
  std::vector<List::node_type> spare_nodes_;
  size_t count_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_BLOCK_ALLOCATOR_H_
