// Mapping of blocks: maps a block's chunks at its address, and unmaps them. Audit mode also does so while the
// chunks keep the bytes: AuditedResidency decides which block and when, and an eviction maps the block that
// it copies. Called with the context current and without the lock, by the component that has set `mapping` or
// has the block's transfer, on launching threads and the device's thread. The driver may refuse. If it is
// then unknown what is mapped, that is the device's error.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/core.h"

namespace spillway::allocator {

// Takes memory for blocks of these numbers of chunks, all of them or none (ChunkPool::Begin). The driver
// makes the handles that do not exist in the right sizes; the lock is released meanwhile. Returns false when
// not enough is available, or when the driver refused some of it. After a refusal the existing chunks are the
// target.
bool TakeChunksLocked(Core* core, Charges* charges, TableLock* lock, const std::vector<uint64_t>& blocks,
                      std::vector<ChunkHandle>* handles) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core->table.mu);

// Maps these handles at `address`, in order. On failure nothing is mapped, or the device has an error.
absl::Status MapHandles(Core* core, uint64_t address, const std::vector<ChunkHandle>& handles);
// Unmaps the handles that MapHandles mapped there, when their uses are over. After a failure the state of the
// mapping is unknown, which is the device's error.
absl::Status UnmapHandles(Core* core, uint64_t address, uint64_t bytes);
// Does the same for a block and all of its chunks.
absl::Status MapBlock(Core* core, const Block& block);
absl::Status UnmapBlock(Core* core, const Block& block);

// Tries to give the device in whose context the launch is called access to those of these pinned blocks that
// it cannot access yet. Returns the driver's error when it does not answer which device that is.
CUresult OpenToCaller(Core* core, StreamRef stream, const std::vector<Block*>& pinned);

// Maps a block again that the audit has unmapped; does nothing for others. Takes back an eviction or decommit
// of the block first. One past its commit point ends first; the block then has no chunks to map. Waits for
// that, and for another thread that maps the block. Fails with the driver's error; the block then stays
// unmapped.
absl::Status Remap(Core* core, Block* block);
// Does the same for the eviction that is about to copy from the block, and lets the eviction go on.
absl::Status RemapForCopy(Core* core, Block* block);
// Unmaps, for the audit, a block that keeps its chunks and that no work queued on the GPU uses. The caller
// has set `mapping` under the lock. Fails with the driver's error; the block then counts as mapped.
absl::Status UnmapForAudit(Core* core, Block* block);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_MAPPING_H_
