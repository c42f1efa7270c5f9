// The states of a block and the legal moves between them. Pure. Pins, dirtiness, tier and transfers are fields of the
// block, not states. docs/states.md draws it and says who may move a block on.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_STATE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_STATE_H_

#include <cstdint>

namespace spillway::allocator {

enum class BlockState : uint8_t {
  kFree,      // not handed out, no chunks
  kEmpty,     // live, holds nothing worth keeping, no chunks
  kResident,  // live, its bytes are on the GPU
  kEvicting,  // live or freed, its bytes are on the GPU and on their way out
  kSpilled,   // live, its bytes are in host memory or spill files only
  kFaulting,  // live or freed, chunks mapped or being mapped, bytes on their way in
  kCached,    // freed, chunks kept for the next block of this size
  kLost,      // live, the only copy could not be read
};
inline constexpr int kBlockStates = 8;

const char* NameOf(BlockState state);

// Whether a block may go from `from` to `to`. No state may go to itself.
bool CanTransition(BlockState from, BlockState to);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_STATE_H_
