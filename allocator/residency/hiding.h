// Hiding: takes a block's mapping away and gives it back while its chunks keep the bytes, for audit mode. Who may
// hide what, and when, is AuditedResidency's business; an eviction reveals what it copies.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_HIDING_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_HIDING_H_

#include "absl/status/status.h"
#include "allocator/residency/core.h"

namespace spillway::allocator {

// Maps a hidden block again; nothing to do for others. An eviction or strip of it is taken back first; one past its
// commit point ends first, and the block is then no longer hidden. Waits for that and for whoever else maps it.
// Context current, no lock held. Fails with the driver's error; the block is then still hidden.
absl::Status Reveal(Core* core, Block* block);
// The same for the eviction that is about to copy from the block, which goes on.
absl::Status RevealForCopy(Core* core, Block* block);

// Unmaps a block that has its chunks, and that nothing queued on the GPU touches. The caller has set `mapping` under
// the lock. Fails with the driver's error; the block then counts as mapped. Context current, no lock held.
absl::Status Hide(Core* core, Block* block);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_HIDING_H_
