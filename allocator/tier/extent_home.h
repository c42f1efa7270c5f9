// ExtentHome: where the bytes of one extent lie while they are off the GPU: in a host buffer, or in a slot of
// the spill files. A plain value without a lock: it owns neither, and residency gives both back.

#ifndef SPILLWAY_ALLOCATOR_TIER_EXTENT_HOME_H_
#define SPILLWAY_ALLOCATOR_TIER_EXTENT_HOME_H_

#include "allocator/tier/host_pool.h"
#include "io/spill_store.h"

namespace spillway::allocator {

struct ExtentHome {
  PinnedBuffer buffer;  // the host buffer, when its data is not null
  io::SlotId slot;      // the slot, when on_disk
  bool on_disk = false;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_EXTENT_HOME_H_
