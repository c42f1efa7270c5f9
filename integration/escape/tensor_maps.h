// TensorMaps: the address range behind each tensor map (128 opaque bytes) that was encoded over memory of
// ours. A map is found by its content. Equal bytes mean an equal address, so copies of a map are found as
// well. The hooks record a map when it is encoded, and look it up at each launch whose parameters are large
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
    uint64_t bytes = 0;  // 0 if not known
  };

  TensorMaps();
  ~TensorMaps();

  // Returns whether any map was ever encoded over memory of ours; false spares launches the look-ups.
  // Lock-free.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Records that the 128 bytes at `content` lead to `range`. Returns false if its places are taken by maps
  // whose blocks still exist: the caller then pins the blocks. Thread-safe; takes the lock.
  bool Record(const void* content, const Range& range, const allocator::AddressMap& addresses);
  // Returns the range that the 128 bytes at `content` lead to; a range of no bytes if they are no known map.
  // Lock-free.
  Range Find(const void* content) const;

  // Adds the blocks behind each map that lies at a multiple of 64 bytes from the start of `bytes`. Lock-free.
  void Scan(const void* bytes, size_t size, const allocator::AddressMap& addresses,
            allocator::AccessSet* set) const;

 private:
  // One map, guarded as by a seqlock: it is written under mu_ while `version` is odd, and a reader that sees
  // an odd or a changed version reads again.
  struct Entry {
    std::atomic<uint64_t> version{0};
    std::atomic<uint64_t> hash{0};  // 0 if the entry is empty
    std::atomic<uint64_t> address{0};
    std::atomic<uint64_t> bytes{0};
  };
  static constexpr size_t kWays = 4;
  static constexpr size_t kSets = 4096;  // a power of two
  using Set = std::array<Entry, kWays>;

  static bool Read(const Entry& entry, uint64_t hash, Range* range);
  static void Write(Entry* entry, uint64_t hash, const Range& range);

  std::atomic<bool> any_{false};
  std::atomic<Set*> sets_{nullptr};  // made with the first map; released in Note, acquired in Find
  os::Mutex mu_{os::LockRank::kRegistry};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_TENSOR_MAPS_H_
