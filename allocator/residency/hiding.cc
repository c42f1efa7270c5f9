#include "allocator/residency/hiding.h"

#include "allocator/residency/evictor.h"

namespace spillway::allocator {
namespace {

void Publish(Core* core, Block* block, bool hidden) {
  os::MutexLock lock(&core->table.mu);
  block->mapping = false;
  block->hidden = hidden;
  core->table.changed.NotifyAll();
}

absl::Status MapAgain(Core* core, Block* block, bool take_back) {
  {
    os::MutexLock lock(&core->table.mu);
    while (block->hidden && block->mapping && !core->closed.load()) {
      core->table.changed.WaitRechecking(&core->table.mu, std::chrono::milliseconds(100));
    }
    if (!block->hidden) return absl::OkStatus();
    if (block->mapping) return absl::CancelledError("Spillway has shut down");
    // In the same breath as `mapping` is set: no strip may give its chunks away now.
    if (take_back) Evictor::CancelLocked(core, block);
    block->mapping = true;
    block->peers = 0;  // a new mapping is open to its own device alone
  }
  const absl::Status status =
      MapChunks(core->parts.driver, core->options.device, block->address, core->chunk_bytes, block->handles);
  Publish(core, block, !status.ok());
  return status;
}

}  // namespace

absl::Status Reveal(Core* core, Block* block) { return MapAgain(core, block, /*take_back=*/true); }

absl::Status RevealForCopy(Core* core, Block* block) { return MapAgain(core, block, /*take_back=*/false); }

absl::Status Hide(Core* core, Block* block) {
  const absl::Status status =
      UnmapChunks(core->parts.driver, block->address, block->chunks * core->chunk_bytes);
  Publish(core, block, status.ok());
  return status;
}

}  // namespace spillway::allocator
