// TensorMaps: the address range behind each tensor map (128 opaque bytes) that was encoded over memory of
// ours, found by content: equal bytes mean an equal address, so copies of a map are known as well. The hooks
// ask on any thread, at each launch with parameters that are large enough, and decide what is done with the
// blocks. Only Note can fail.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_TENSOR_MAPS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_TENSOR_MAPS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "io/os/sync.h"

namespace spillway::integration {

class TensorMaps {
 public:
  static constexpr size_t kBytes = 128;
  static constexpr size_t kStep = 64;  // how a map is aligned in parameters and in memory

  struct Range {
    uint64_t address = 0;
    uint64_t bytes = 0;  // 0: not known
  };

  TensorMaps();
  ~TensorMaps();

  // Whether any map was ever encoded over memory of ours. Lock-free; false spares the launches everything
  // else.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Remembers what the 128 bytes at `content` lead to. False when its place is taken by maps that are in use
  // still: the caller then holds the blocks.
  bool Note(const void* content, const Range& range, const allocator::AddressMap& addresses);
  // What they lead to; no bytes when they are no known map. Lock-free.
  Range Find(const void* content) const;

  // Adds the blocks behind each map that lies in the bytes at a step of 64. Lock-free.
  void Scan(const void* bytes, size_t size, const allocator::AddressMap& addresses,
            allocator::AccessSet* set) const;

 private:
  // Written under mu_ with `version` odd; a reader that sees it change or odd reads again. All by seqlock
  // rules.
  struct Entry {
    std::atomic<uint64_t> version{0};
    std::atomic<uint64_t> hash{0};  // 0: empty
    std::atomic<uint64_t> address{0};
    std::atomic<uint64_t> bytes{0};
  };
  static constexpr size_t kWays = 4;
  static constexpr size_t kSets = 4096;  // a power of two
  using Set = std::array<Entry, kWays>;

  static bool Read(const Entry& entry, uint64_t hash, Range* range);
  static void Write(Entry* entry, uint64_t hash, const Range& range);

  std::atomic<bool> any_{false};
  std::atomic<Set*> sets_{nullptr};  // made with the first map; release in Note, acquire in Find
  os::Mutex mu_{os::LockRank::kRegistry};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_TENSOR_MAPS_H_
