// IterationUses: one iteration of a job as bytes and order alone: the blocks that each launch uses, and each
// block's next use or free. The bound on traffic works on it. Pure data; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_BOUND_ITERATION_USES_H_
#define SPILLWAY_POLICY_BOUND_ITERATION_USES_H_

#include <cstdint>
#include <vector>

#include "policy/model/units.h"
#include "policy/trace/trace.h"

namespace spillway::policy {

// A use of a block by the launch at one position. Later positions count on past the iteration's end.
struct IterationUse {
  uint32_t block = 0;     // index into IterationUses::blocks
  uint32_t next_use = 0;  // position + 1 .. position + launches
  // The block is freed before the launch at this position, next_use at the latest; 0: it is not freed before
  // its next use.
  uint32_t gone_at = 0;
};

struct IterationUses {
  struct Block {
    TraceBlock block = 0;
    Bytes bytes = 0;         // of memory, in whole chunks
    Bytes copied_bytes = 0;  // of these, the bytes that are copied when the block moves
  };
  uint32_t launches = 0;
  std::vector<Block> blocks;        // in order of first mention
  std::vector<uint32_t> first_use;  // of the launch at a position, into uses; launches + 1 entries
  std::vector<IterationUse> uses;
};

// Returns the uses of the `iteration_launches` launches of `trace` from `start` on. `sizes` has the size of
// each block that they name, in whole chunks; a block that it lacks counts as 0 bytes. `copied` has the bytes
// that are copied when a block moves; a block that it lacks is copied whole.
IterationUses FindIterationUses(const Trace& trace, LaunchIndex start, uint32_t iteration_launches,
                                const BlockSizes& sizes, const BlockSizes& copied = {});

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_BOUND_ITERATION_USES_H_
