// Long-term pins: the reason why a block stays on the GPU although no launch in preparation names it, and the
// facts that are needed to end the pin. integration/escape asks for pins and ends them, on the threads of the
// application; BlockTable counts them. These are plain values; nothing here can fail.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_PIN_H_
#define SPILLWAY_ALLOCATOR_MEMORY_PIN_H_

#include <cstdint>
#include <vector>

#include "allocator/driver/stream_ref.h"
#include "allocator/memory/block_id.h"

namespace spillway::allocator {

// Why a block may not leave the GPU.
enum class PinReason : int {
  kUnknownCall,   // named in a call whose effect is not known
  kExport,        // IPC handle, shareable handle, dma-buf
  kPeer,          // reachable from another device or process
  kTexture,       // texture or surface object
  kGraph,         // parameter of a graph node or of a captured launch
  kPointerTable,  // its address was copied to the device inside a table
  kModuleGlobal,  // its address was written into a module's global
  kDenied,        // used by a kernel of the deny list
  kUnseenWrite,   // written on its way off the GPU, by a kernel that did not name it
  kCount,
};
inline constexpr int kPinReasons = static_cast<int>(PinReason::kCount);
inline const char* NameOf(PinReason reason) {
  constexpr const char* kNames[] = {"unknown_call", "export",        "peer",          "texture",
                                    "graph",        "pointer_table", "module_global", "denied", "unseen_write"};
  return kNames[static_cast<int>(reason)];
}

// A block that was pinned. Ids are used again; the generation distinguishes a block from earlier ones with
// its id.
struct PinnedBlock {
  BlockId id;
  uint32_t generation = 0;
};

// Work that may still use a pinned block by an escaped pointer when its pin ends: the work queued on these
// streams now, and all work that used `pointer_block`, the block that contained the pointer, with that
// block's own stream.
struct EscapedUsers {
  std::vector<StreamRef> streams;
  BlockId pointer_block;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_PIN_H_
