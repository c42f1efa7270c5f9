#include "allocator/residency/hiding.h"

#include "allocator/residency/evictor.h"
#include "io/os/errno.h"

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
    if (block->hidden && block->mapping) {
      const os::Wait wait(core->waits, os::WaitKind::kAudit, "a block that is being mapped");
      while (block->hidden && block->mapping) SPILLWAY_RETURN_IF_ERROR(core->AwaitChangeLocked(wait));
    }
    if (!block->hidden) return absl::OkStatus();
    // In the same breath as `mapping` is set: no strip may give its chunks away now.
    if (take_back) Evictor::CancelLocked(core, block);
    block->mapping = true;
    block->peers = 0;  // a new mapping is open to its own device alone
  }
  const absl::Status status = MapBlock(core, *block);
  Publish(core, block, !status.ok());
  return status;
}

}  // namespace

absl::Status Reveal(Core* core, Block* block) { return MapAgain(core, block, /*take_back=*/true); }

absl::Status RevealForCopy(Core* core, Block* block) { return MapAgain(core, block, /*take_back=*/false); }

absl::Status Hide(Core* core, Block* block) {
  const absl::Status status = UnmapBlock(core, *block);
  Publish(core, block, status.ok());
  return status;
}

}  // namespace spillway::allocator
