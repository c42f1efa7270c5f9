#include "allocator/residency/transfer/mapping.h"

#include <string>
#include <utility>

#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/test_points.h"
#include "io/os/bytes_text.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

void Publish(Core* core, Block* block, bool unmapped) {
  const TableLock lock(core->table);
  block->memory.mapping = false;
  block->memory.unmapped = unmapped;
  core->table.changed.NotifyAll();
}

absl::Status MapAgain(Core* core, Block* block, bool take_back) {
  {
    TableLock lock(core->table);
    if (block->memory.unmapped && block->memory.mapping) {
      const os::Wait wait(core->waits, os::WaitKind::kAudit, "a block that is being mapped");
      while (block->memory.unmapped && block->memory.mapping)
        SPILLWAY_RETURN_IF_ERROR(core->AwaitChangeLocked(&lock, wait));
    }
    if (!block->memory.unmapped) return absl::OkStatus();
    // The cancel and the store to `mapping` are under one lock, so no decommit can give the chunks away
    // between them.
    if (take_back) core->table.CancelEvictionLocked(lock, block);
    block->memory.mapping = true;
    block->memory.peers = 0;  // a new mapping is open to its own device alone
  }
  const absl::Status status = MapBlock(core, *block);
  Publish(core, block, !status.ok());
  return status;
}

void OpenToDevice(Core* core, int device, const std::vector<Block*>& pinned) {
  const uint32_t bit = 1u << device;
  std::vector<Block*> lacking;
  {
    const TableLock lock(core->table);
    for (Block* block : pinned) {
      if (block->live() && block->has_chunks() && (block->memory.peers & bit) == 0) lacking.push_back(block);
    }
  }
  if (lacking.empty()) return;
  // The pins keep the mappings. Errors are ignored: a copy between devices does without access, and a kernel
  // is only launched on blocks that the driver reports as reachable, for which this does not fail.
  for (Block* block : lacking) {
    const uint64_t bytes = block->chunks * core->chunk_bytes;
    GrantAccess(core->parts.driver, device, block->address, bytes).IgnoreError();
  }
  const TableLock lock(core->table);
  for (Block* block : lacking) block->memory.peers |= bit;  // granted or not, it is not tried again
}

}  // namespace

bool TakeChunksLocked(Core* core, Charges* charges, TableLock* lock, const std::vector<uint64_t>& blocks,
                      std::vector<ChunkHandle>* handles) {
  ChunkPool& pool = charges->chunks(*lock);
  Supply supply;
  // The driver refused memory a moment ago, so handles that were released now might not come back.
  const bool scarce = charges->lowered_at(*lock) != 0;
  if (!(scarce && pool.TakeAsTheyAre(blocks, &supply.handles)) && !pool.Begin(blocks, &supply)) return false;
  if (!supply.handles.empty()) SPILLWAY_COUNT(kChunks, static_cast<int>(ChunkSource::kFree));
  absl::Status status;
  if (!supply.ready()) {
    SPILLWAY_COUNT(
        kChunks, static_cast<int>(supply.to_release.empty() ? ChunkSource::kCreated : ChunkSource::kRemade));
    core->counters.handles_remade += supply.to_release.size();
    core->table.mu.Unlock();
    {
      const os::Wait wait(core->waits, os::WaitKind::kDriverCall, "cuMemCreate");
      status = Make(core->parts.driver, core->options.device, core->chunk_bytes, &supply);
    }
    core->error.Record(status);
    core->table.mu.Lock();
    pool.End(&supply);
    core->table.changed.NotifyAll();  // released chunks may be created now
    charges->RecordPeak(*lock);
  }
  *handles = std::move(supply.handles);
  if (status.ok()) return true;
  if (charges->LowerTarget(*lock)) {
    os::Log(os::LogLevel::kWarn, "the GPU has less than the budget, chunks fall to " +
                                     os::BytesText(pool.target() * core->chunk_bytes) + ": " +
                                     std::string(status.message()));
  }
  pool.Give(handles);
  return false;
}

absl::Status MapHandles(Core* core, uint64_t address, const std::vector<ChunkHandle>& handles) {
  const os::Wait wait(core->waits, os::WaitKind::kDriverCall, "cuMemMap");
  bool stays_mapped = false;
  absl::Status status =
      MapChunks(core->parts.driver, core->options.device, address, core->chunk_bytes, handles, &stays_mapped);
  core->error.Record(status);
  if (stays_mapped) core->error.Fail(status);
  return status;
}

absl::Status UnmapHandles(Core* core, uint64_t address, uint64_t bytes) {
  const os::Wait wait(core->waits, os::WaitKind::kDriverCall, "cuMemUnmap");
  absl::Status status = UnmapChunks(core->parts.driver, address, bytes);
  if (status.ok()) return status;
  core->error.Fail(status);
  os::ReportLine("nothing is moved any more: " + std::string(status.message()));
  return status;
}

absl::Status MapBlock(Core* core, const Block& block) {
  if (block.memory.reached.empty()) return MapHandles(core, block.address, block.memory.handles);
  std::vector<ChunkHandle> handles = block.memory.handles;
  for (const PinnedBuffer& buffer : block.memory.reached) handles.push_back({buffer.handle, 1});
  return MapHandles(core, block.address, handles);
}

absl::Status UnmapBlock(Core* core, const Block& block) {
  return UnmapHandles(core, block.address, block.chunks * core->chunk_bytes);
}

absl::Status Remap(Core* core, Block* block) { return MapAgain(core, block, /*take_back=*/true); }

absl::Status RemapForCopy(Core* core, Block* block) { return MapAgain(core, block, /*take_back=*/false); }

absl::Status UnmapForAudit(Core* core, Block* block) {
  const absl::Status status = UnmapBlock(core, *block);
  Publish(core, block, status.ok());
  return status;
}

CUresult OpenToCaller(Core* core, StreamRef stream, const std::vector<Block*>& pinned) {
  if (stream.context == nullptr || stream.context == core->parts.context) return CUDA_SUCCESS;
  CUdevice device = -1;
  const ScopedContext scope(core->parts.driver, stream.context);
  if (scope.entered() != CUDA_SUCCESS) return scope.entered();
  const CUresult asked = core->parts.driver->cuCtxGetDevice(&device);
  const bool other = device >= 0 && device < kMaxDevices && device != core->options.device;
  if (asked == CUDA_SUCCESS && other) OpenToDevice(core, device, pinned);
  return asked;
}

}  // namespace spillway::allocator
