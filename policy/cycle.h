// Cycle: one period of a job as the planner works on it: uses with what comes next for their blocks, and the
// replay that chooses which blocks are away when (farthest next use, steady over the period's repeats).

#ifndef SPILLWAY_POLICY_CYCLE_H_
#define SPILLWAY_POLICY_CYCLE_H_

#include <cstdint>
#include <vector>

#include "policy/plan.h"
#include "policy/planner.h"
#include "policy/trace.h"

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

// A stretch of the cycle in which a block is not on the GPU: after last_use has completed, until next_use or,
// when the block is freed while away, for good.
struct Absence {
  uint32_t block = 0;
  uint32_t last_use = 0;  // position, below the period
  uint32_t until = 0;     // position, counted on past the period's end: next use, or where the block is freed
  bool returns = true;
  friend bool operator==(const Absence&, const Absence&) = default;
  friend auto operator<=>(const Absence&, const Absence&) = default;
};

// How far a use reaches over its neighbours, so that what is planned can be had in time: transfers take a while, and
// the host asks for a block as many launches early as it runs ahead of the GPU. All zero: not at all.
struct Widening {
  Bytes room_bytes = 0;       // what the widened sets of one position may hold together; 0: nothing is widened
  Bytes run_ahead_bytes = 0;  // the runtime's bound on the bytes that uncompleted launches touch
  uint32_t launches_in = 0;   // at least so many launches before its use a block is to be back
  uint32_t launches_out = 0;  // so many launches after its last use its room is not counted on
};

// A use never reaches beyond the block's own hand-out and free.
Cycle MakeCycle(const Trace& trace, LaunchIndex start, uint32_t period, const BlockSizes& sizes,
                const Widening& widening = {});

// What farthest-next-use sends away when the cycle repeats for long. False when a launch does not fit into
// `budget`. `steady`: the last two repeats chose the same.
bool ChooseAbsences(const Cycle& cycle, Bytes budget, std::vector<Absence>* absences, bool* steady);

// Bytes on the GPU during each launch of the cycle, given what is away.
std::vector<int64_t> OccupancyOf(const Cycle& cycle, const std::vector<Absence>& absences);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_CYCLE_H_
