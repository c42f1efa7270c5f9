// Mapping of blocks: maps a block's chunks at its address, and takes the mapping away. Audit mode does so
// also while the chunks keep the bytes: AuditedResidency decides which block and when, and an eviction maps
// what it copies. Called with the context current and no lock, by the part that has set `mapping` or has the
// block's transfer: on launching threads and the device's. The driver may refuse; where it is then unknown
// what is mapped, that is the device's error.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/core.h"

namespace spillway::allocator {

// Takes memory for blocks of these many chunks, all of them or none (ChunkPool::Begin), and has the driver
// make what is not there in the right sizes; the lock is released meanwhile. False: not enough is available,
// or the driver refused some of it; the target is then what there is.
bool TakeChunksLocked(Core* core, Charges* charges, TableLock* lock, const std::vector<uint64_t>& blocks,
                      std::vector<ChunkHandle>* handles) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core->table.mu);

// Maps these handles at `address`, in order. On failure nothing is mapped, or the device has an error.
absl::Status MapHandles(Core* core, uint64_t address, const std::vector<ChunkHandle>& handles);
// Takes away what MapHandles mapped there, when its uses are over. On failure its state is unknown: the
// device's error.
absl::Status UnmapHandles(Core* core, uint64_t address, uint64_t bytes);
// The same of a block and all of its chunks.
absl::Status MapBlock(Core* core, const Block& block);
absl::Status UnmapBlock(Core* core, const Block& block);

// Has the device whose context the launch is called in access those of these pinned blocks that it may not touch yet, or
// tries to. The driver's answer when it does not tell which device that is.
CUresult OpenToCaller(Core* core, StreamRef stream, const std::vector<Block*>& pinned);

// Maps again a block that the audit has unmapped; nothing to do for others. Takes back an eviction or
// decommit of it first. One past its commit point ends first; the block then has no chunks to map. Waits for
// that, and for another thread that maps it. Fails with the driver's error; the block then stays unmapped.
absl::Status Remap(Core* core, Block* block);
// The same for the eviction that is about to copy from the block, and goes on.
absl::Status RemapForCopy(Core* core, Block* block);
// Unmaps, for the audit, a block that keeps its chunks and that nothing queued on the GPU uses. The caller
// has set `mapping` under the lock. Fails with the driver's error; the block then counts as mapped.
absl::Status UnmapForAudit(Core* core, Block* block);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_
