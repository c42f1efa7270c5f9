// TensorMaps: the address range behind each tensor map (128 opaque bytes) that was encoded over memory of
// ours. A map is found by its content: equal bytes mean an equal address, so copies of a map are known as
// well. The hooks note a map when it is encoded, and look it up at each launch whose parameters are large
// enough, on any thread. They decide what is done with the blocks. Only Note can fail.

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
  static constexpr size_t kAlignment = 64;  // of a map, in parameters and in memory

  struct Range {
    uint64_t address = 0;
    uint64_t bytes = 0;  // 0: not known
  };

  TensorMaps();
  ~TensorMaps();

  // Whether any map was ever encoded over memory of ours. Lock-free. False spares launches the look-ups.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Remembers that the 128 bytes at `content` lead to `range`. False when its places are taken by maps whose
  // blocks still exist: the caller then pins the blocks. Any thread; takes the lock.
  bool Note(const void* content, const Range& range, const allocator::AddressMap& addresses);
  // What the 128 bytes at `content` lead to; a range of no bytes when they are no known map. Lock-free.
  Range Find(const void* content) const;

  // Adds the blocks behind each map that lies in the bytes at a multiple of 64 from their start. Lock-free.
  void Scan(const void* bytes, size_t size, const allocator::AddressMap& addresses,
            allocator::AccessSet* set) const;

 private:
  // A seqlock: written under mu_ while `version` is odd. A reader that sees it odd or changed reads again.
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
