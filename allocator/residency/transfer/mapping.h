// Mapping of blocks: gives a block's chunks their address, and takes it away. For audit mode also while the chunks keep
// the bytes: who may unmap what then, and when, is AuditedResidency's business; an eviction maps what it copies. Called
// with the context current and no lock held, by whoever has set `mapping` (or has the block's transfer). The driver may
// refuse; where what is mapped is then unknown, that is the device's error.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_

#include "absl/status/status.h"
#include "allocator/residency/state/core.h"

namespace spillway::allocator {

// Maps the block's chunks. On failure nothing is mapped, or the device has an error.
absl::Status MapBlock(Core* core, const Block& block);
// Takes the block's mapping away, whose uses are over. A failure leaves it in an unknown state: the device's error.
absl::Status UnmapBlock(Core* core, const Block& block);

// Maps a hidden block again; nothing to do for others. An eviction or strip of it is taken back first; one past its
// commit point ends first, and the block is then no longer hidden. Waits for that and for whoever else maps it.
// Fails with the driver's error; the block is then still hidden.
absl::Status Reveal(Core* core, Block* block);
// The same for the eviction that is about to copy from the block, which goes on.
absl::Status RevealForCopy(Core* core, Block* block);
// Unmaps a block that has its chunks, and that nothing queued on the GPU touches. The caller has set `mapping` under
// the lock. Fails with the driver's error; the block then counts as mapped.
absl::Status Hide(Core* core, Block* block);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_
