// ChunkHome: where the bytes of one spilled chunk lie: in a piece of pinned host memory, or in a slot of the spill files.

#ifndef SPILLWAY_ALLOCATOR_TIER_CHUNK_HOME_H_
#define SPILLWAY_ALLOCATOR_TIER_CHUNK_HOME_H_

#include "allocator/tier/host_pool.h"
#include "io/spill_store.h"

namespace spillway::allocator {

struct ChunkHome {
  HostPiece piece;  // host tier when data is not null
  io::SlotId slot;  // else this slot, when on_disk
  bool on_disk = false;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_CHUNK_HOME_H_
