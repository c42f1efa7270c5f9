// ExtentHome: where the bytes of one extent lie while they are off the GPU: in a host buffer, or in a slot of
// the spill files. A plain value without a lock: it owns neither, and residency gives both back. The block
// table keeps a list of them for each block, in the order of its extents, under its lock; transfers read it
// while the block's state keeps it as it is. Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_TIER_EXTENT_HOME_H_
#define SPILLWAY_ALLOCATOR_TIER_EXTENT_HOME_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/tier/host_pool.h"
#include "io/store/spill_store.h"

namespace spillway::allocator {

// One of the two, or neither: `slot` says nothing unless on_disk.
struct ExtentHome {
  PinnedBuffer buffer;  // the host buffer, when its data is not null
  io::SlotId slot;      // the slot, when on_disk
  bool on_disk = false;

  bool in_host() const { return !on_disk && buffer.data != nullptr; }
};

// Calls visit(first, count) for each run of the first `extents` extents, by index, whose bytes lie in host buffers
// that adjoin: one copy moves them, for each has a cost of its own. A host buffer has `buffer_bytes`. Runs are of
// at most kLargestHostCopy; other extents are passed over.
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
