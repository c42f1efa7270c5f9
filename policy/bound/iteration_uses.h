// Cycle: one period of a job as bytes and order alone: uses with what comes next for their blocks. What the bound on
// traffic works on.

#ifndef SPILLWAY_POLICY_BOUND_ITERATION_USES_H_
#define SPILLWAY_POLICY_BOUND_ITERATION_USES_H_

#include <cstdint>
#include <vector>

#include "policy/trace/trace.h"
#include "policy/trace/units.h"

namespace spillway::policy {

// A use of a block by the launch at one position. Positions that come later count on past the period's end.
struct CycleUse {
  uint32_t block = 0;     // index into Cycle::blocks
  uint32_t next_use = 0;  // position + 1 .. position + period
  uint32_t gone_at =
      0;  // freed before the launch at this position, next_use at the latest; 0: not freed till then
};

struct Cycle {
  struct Block {
    TraceBlock block = 0;
    Bytes bytes = 0;
  };
  uint32_t period = 0;
  std::vector<Block> blocks;
  std::vector<uint32_t> first_use;  // of the launch at a position, into uses; period + 1 entries
  std::vector<CycleUse> uses;
};

// The period is the `period` launches of `trace` from `start` on. `sizes` has each block that they name, in whole chunks;
// one that it lacks is taken to need no room.
Cycle MakeCycle(const Trace& trace, LaunchIndex start, uint32_t period, const BlockSizes& sizes);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_BOUND_ITERATION_USES_H_
