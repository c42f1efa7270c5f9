// ExtentHome: the place of one extent's bytes while they are off the GPU: a host buffer, or a slot of the
// spill files. It is a plain value without a lock. It owns neither place; residency gives both back. The
// block table keeps a list of homes for each block, in the order of its extents, under its lock. Transfers
// read the list while the block's state keeps it unchanged. Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_TIER_EXTENT_HOME_H_
#define SPILLWAY_ALLOCATOR_TIER_EXTENT_HOME_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/tier/host_pool.h"
#include "io/store/spill_store.h"

namespace spillway::allocator {

enum class Tier : uint8_t { kNone, kHost, kDisk };

// A place in the named tier; with kNone the bytes are elsewhere.
struct ExtentHome {
  Tier tier = Tier::kNone;
  PinnedBuffer buffer;  // kHost
  io::SlotId slot;      // kDisk

  static ExtentHome InHost(const PinnedBuffer& buffer) { return {Tier::kHost, buffer, {}}; }
  static ExtentHome OnDisk(io::SlotId slot) { return {Tier::kDisk, {}, slot}; }
  bool in_host() const { return tier == Tier::kHost; }
  bool on_disk() const { return tier == Tier::kDisk; }
};

// Calls visit(first, count) for each run of the first `extents` extents, by index, whose bytes lie in
// adjoining host buffers. One copy moves such a run, because each copy has a cost of its own. A host buffer
// has `buffer_bytes`. Runs have at most kLargestHostCopy bytes; other extents are skipped.
inline constexpr uint64_t kLargestHostCopy = 256 << 20;
template <typename Visitor>
void ForEachHostRun(const std::vector<ExtentHome>& homes, size_t extents, uint64_t buffer_bytes,
                    Visitor visit) {
  for (size_t first = 0; first < extents;) {
    if (!homes[first].in_host()) {
      ++first;
      continue;
    }
    size_t count = 1;
    const auto adjoins = [&](size_t next) {
      return next < extents && homes[next].in_host() &&
             homes[next].buffer.data == homes[first].buffer.data + count * buffer_bytes;
    };
    while ((count + 1) * buffer_bytes <= kLargestHostCopy && adjoins(first + count)) ++count;
    visit(first, count);
    first += count;
  }
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_EXTENT_HOME_H_
