// MigrationPlan: what to move when, over one period of the job. Data only: policy/planner makes it, the
// allocator room's PlanRunner carries it out, the simulator replays it.

#ifndef SPILLWAY_POLICY_PLAN_H_
#define SPILLWAY_POLICY_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/units.h"

namespace spillway::policy {

enum class PlanTier : uint8_t { kHost, kDisk };

enum class PlanAction : uint8_t {
  kCopyOut,  // copy the block to `tier`; the GPU copy stays valid until a drop
  kDrop,     // give up the GPU copy, which must be copied out (kCopyOut) or clean by then
  kFetch,    // bring the block back to the GPU
  kDemote,   // move the spilled bytes from host memory to disk
};

// When a step may start, counted on the GPU, not on the host.
enum class PlanTrigger : uint8_t {
  kAfterCompleted,  // launch `launch` has completed
  kBeforeLaunch,    // as soon as it fits, and in any case before launch `launch` reaches the gate
};

struct PlanStep {
  PlanAction action = PlanAction::kFetch;
  PlanTier tier = PlanTier::kHost;
  PlanTrigger trigger = PlanTrigger::kBeforeLaunch;
  uint32_t launch = 0;  // position in the period, 0 .. period-1. kFetch: may start when the launch before it has
                        // completed
  uint32_t needed = 0;  // kFetch: position of the launch that needs the block, in the next period when it is less
                        // than `launch`; others: unused
  TraceBlock block = 0;
};

// One launch of the period as it is expected to come again.
struct ExpectedLaunch {
  uint64_t signature = 0;  // SignatureOf(tag, blocks)
  uint32_t first_use = 0;  // index into MigrationPlan::uses
  uint32_t use_count = 0;
};

// A block named by an expected launch.
struct ExpectedUse {
  TraceBlock block = 0;
  uint32_t next_position = 0;  // position of the block's next use, counted from this launch's period start: may be
                               // period..2*period-1 (in the next period)
};

struct MigrationPlan {
  LaunchIndex start = 0;  // index of the launch at position 0; periods follow each other without a gap
  uint32_t period = 0;    // launches in a period, at least 1
  std::vector<ExpectedLaunch> launches;  // `period` of them
  std::vector<ExpectedUse> uses;
  std::vector<PlanStep> steps;  // in the order in which they start; same order each period
  bool steady = true;           // false: steps are an order of preference only, to be throttled by free chunks

  uint32_t PositionOf(LaunchIndex index) const { return static_cast<uint32_t>((index - start) % period); }
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLAN_H_
