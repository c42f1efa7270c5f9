#include "allocator/residency/core.h"

#include <string>

#include "io/os/log.h"

namespace spillway::allocator {

absl::Status MapBlock(Core* core, const Block& block) {
  const os::Wait wait(core->waits, os::WaitKind::kDriverCall, "cuMemMap");
  bool stays_mapped = false;
  absl::Status status = MapChunks(core->parts.driver, core->options.device, block.address, core->chunk_bytes,
                                  block.handles, &stays_mapped);
  core->error.Note(status);
  if (stays_mapped) core->error.Fail(status);
  return status;
}

absl::Status UnmapBlock(Core* core, const Block& block) {
  const os::Wait wait(core->waits, os::WaitKind::kDriverCall, "cuMemUnmap");
  absl::Status status = UnmapChunks(core->parts.driver, block.address, block.chunks * core->chunk_bytes);
  if (status.ok()) return status;
  core->error.Fail(status);
  os::Announce("nothing is moved any more: " + std::string(status.message()));
  return status;
}

}  // namespace spillway::allocator
