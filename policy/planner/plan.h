// MigrationPlan: what to move when, over one period of the job. Data only: RuntimePlanner makes it, PlanCursor says when
// its ops may start, the allocator's PlanRunner carries it out.

#ifndef SPILLWAY_POLICY_PLANNER_PLAN_H_
#define SPILLWAY_POLICY_PLANNER_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/trace/units.h"

namespace spillway::policy {

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
  PlanTier tier = PlanTier::kHost;  // where the copy goes, lies while the block is away, or comes from
  PlanTrigger trigger = PlanTrigger::kBeforeLaunch;
  // Position in the period, 0 .. period-1, from which the step may start. kCopyOut: the last launch that writes the
  // block before it leaves, whose use of it is not the last one if later ones only read. kDrop: the last launch that
  // uses it. kFetch: may start when the launch before this one has completed, the earliest start that is ever
  // useful; whether there is room for it yet is for who carries the plan out to tell (MigrationPlan::expected_bytes).
  uint32_t launch = 0;
  // Position up to which the step is of use. kCopyOut: the launch of the block's drop, in the next period when it is
  // less than `launch`; the order in which copies are wanted. kDrop: the launch before which the block is used again or
  // freed, in the next period when it is not more than `launch`. kFetch: the launch on the GPU when the host is expected
  // to ask for the block, from which on expected_bytes counts it: that of its next use or a little before; in the next
  // period when it is less than `launch`.
  uint32_t needed = 0;
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
  uint32_t next_position =
      0;  // position of the block's next use, counted from this launch's period start: may be
          // period..2*period-1 (in the next period)
};

// Steps, per time that a block is away: a kDrop; before it a kCopyOut, unless one for an absence before, in the same
// period or the one before, has copied the same content (then the drop is clean); after it a kFetch, unless the block is
// freed while it is away. A copy that is there and good already makes a kCopyOut a step without work. A kDrop whose
// copy is not complete waits for it; one that is overtaken by the block's next use is left out, and its kFetch with it.
struct MigrationPlan {
  LaunchIndex start = 0;  // index of the launch at position 0; periods follow each other without a gap
  uint32_t period = 0;    // launches in a period, at least 1
  std::vector<ExpectedLaunch> launches;  // `period` of them
  std::vector<ExpectedUse> uses;
  // In the order of their earliest starts, the same each period; what may start at once: drops, then copies out, then
  // fetches, each in the order in which it is needed. Which transfer goes next on a lane is decided by `needed`.
  std::vector<PlanStep> steps;
  bool steady = true;  // false: steps are an order of preference only, to be throttled by free chunks

  // What the plan reckons with; empty or 0 when it does not.
  // By position: bytes of the period's blocks on the GPU while the host is about to be, or the GPU is, at that launch,
  // with absences away from their drop to PlanStep::needed of their fetch. A block fetched ahead adds to those from its
  // fetch to there, and none may then exceed the budget.
  std::vector<int64_t> expected_bytes;
  std::vector<Nanos> durations;  // by position, of each launch on the GPU
  Bytes budget_bytes = 0;        // for the period's blocks

  uint32_t PositionOf(LaunchIndex index) const { return static_cast<uint32_t>((index - start) % period); }
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_PLAN_H_
