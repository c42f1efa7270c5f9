// Holds: why blocks stay on the GPU although no launch names them, and what is needed to end one. Counting is
// BlockTable's and DeviceResidency's business; what asks for holds is the hooks'.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_PIN_H_
#define SPILLWAY_ALLOCATOR_MEMORY_PIN_H_

#include <cstdint>
#include <vector>

#include "allocator/driver/stream_ref.h"
#include "allocator/memory/block_id.h"

namespace spillway::allocator {

// Why a block may not leave the GPU.
enum class HoldReason : int {
  kUnknownCall,   // named in a call that is not understood
  kExport,        // IPC handle, shareable handle, dma-buf
  kPeer,          // reachable from another device or process
  kTexture,       // texture or surface object
  kGraph,         // parameter of a graph node or of a captured launch
  kPointerTable,  // its address was copied to the device inside a table
  kModuleGlobal,  // its address was written into a module's global
  kDenied,        // used by a kernel of the deny list
  kCount,
};
inline constexpr int kHoldReasons = static_cast<int>(HoldReason::kCount);
inline const char* NameOf(HoldReason reason) {
  constexpr const char* kNames[] = {"unknown_call", "export",        "peer",          "texture",
                                    "graph",        "pointer_table", "module_global", "denied"};
  return kNames[static_cast<int>(reason)];
}

// One use of a block that a hold was taken on: ids are reused, and the generation tells a block from those before it.
struct HeldBlock {
  BlockId id;
  uint32_t generation = 0;
};

// Who may have used a held block without naming it, and is not known to be done yet: what is queued on these streams
// now, and whatever used this block (which carried the address), its stream included.
struct HiddenUsers {
  std::vector<StreamRef> streams;
  BlockId carrier;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_PIN_H_
