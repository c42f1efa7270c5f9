// MigrationPlan: the moves of blocks over one iteration of a job that repeats, each with the launches between
// which it is of use. RuntimePlanner makes it, PlanCursor says when its ops may start, the allocator's
// PlanRunner carries it out. Data only, not changed once it is made; any thread.

#ifndef SPILLWAY_POLICY_MODEL_PLAN_H_
#define SPILLWAY_POLICY_MODEL_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/model/units.h"

namespace spillway::policy {

enum class PlanOpKind : uint8_t {
  kCopyOut,  // copy the block to `tier`; the GPU copy stays valid until a drop
  kDrop,     // give up the GPU copy, which must be copied out (kCopyOut) or clean by then
  kFetch,    // bring the block back to the GPU
};

// One entry of a plan.
struct PlanOp {
  PlanOpKind kind = PlanOpKind::kFetch;
  PlanTier tier = PlanTier::kHost;  // where the copy goes, lies while the block is away, or comes from
  // Position in the iteration, 0 .. iteration_launches - 1, from which the op may start, counted on the GPU.
  // kCopyOut: the last launch that writes the block before it leaves, once it has completed; later ones may
  // still read the block.
  // kDrop: the last launch that uses the block, once it has completed.
  // kFetch: the op may start when the launch before this one has completed; an earlier start is never useful.
  // Whether the bytes fit by then follows from MigrationPlan::expected_bytes.
  uint32_t launch = 0;
  // Position up to which the op is of use.
  // kCopyOut: the launch of the block's drop, in the next iteration when it is less than `launch`. Copies are
  // wanted in this order.
  // kDrop: the launch before which the block is used again or freed, in the next iteration when it is not
  // more than `launch`.
  // kFetch: the launch on the GPU when the host is expected to ask for the block: that of its next use or a
  // little before. expected_bytes counts the block from there on. In the next iteration when it is less than
  // `launch`.
  uint32_t needed = 0;
  TraceBlock block = 0;
};

// The blocks that one launch of the iteration names.
struct ExpectedLaunch {
  uint32_t first_use = 0;  // index into MigrationPlan::uses
  uint32_t use_count = 0;
};

// How far the host may be ahead of the GPU: by so many launches, or by as many as last so long, whichever is
// more.
struct RunAhead {
  uint32_t launches = 4;
  Nanos nanos = 2'000'000;
};

// A block that is away for one idle interval has up to three ops there: a kDrop; before it a kCopyOut, unless
// one of an earlier interval, of the same iteration or the one before, has copied the same content (then the
// drop is clean); after it a kFetch, unless the block is freed while it is away. A kCopyOut of a block that
// has a good copy already costs nothing. A kDrop waits until its copy is complete. If the block's next use
// overtakes the kDrop, it is left out, and its kFetch with it.
struct MigrationPlan {
  LaunchIndex start = 0;                 // index of the launch at position 0; iterations follow without a gap
  uint32_t iteration_launches = 0;       // launches in the iteration, at least 1
  std::vector<ExpectedLaunch> launches;  // iteration_launches of them
  std::vector<TraceBlock> uses;          // by launch
  // Ordered by their earliest starts, the same in each iteration. Ops that may start at once are ordered as
  // drops, then copies out, then fetches, each by `needed`. `needed` decides which transfer goes next in a
  // copy queue.
  std::vector<PlanOp> ops;
  // The job has departed from the plan (PlanHints): its ops are carried out as far as there is memory to
  // spare, and blocks leave as without a plan.
  bool hints = false;

  // The members from here on are the plan's assumptions; one that it does not make is empty or 0.

  // Bytes of the iteration's blocks on the GPU, by position: while the GPU is at that launch, or the host is
  // about to be. A block is away from its drop to PlanOp::needed of its fetch. A block that is fetched ahead
  // adds its bytes from the fetch to there, and no sum may then exceed the budget.
  std::vector<int64_t> expected_bytes;
  std::vector<Nanos> durations;  // by position, of each launch on the GPU
  Bytes budget_bytes = 0;        // for the iteration's blocks
  RunAhead run_ahead;            // while the plan is in force

  uint32_t PositionOf(LaunchIndex index) const {
    return static_cast<uint32_t>((index - start) % iteration_launches);
  }
  // The number of launches that may be uncompleted when the launch at `position` goes. `durations` must be
  // known.
  uint32_t LaunchesAhead(uint32_t position) const {
    uint32_t ahead = 0;
    for (Nanos time = 0; ahead < kMaxAhead && (ahead < run_ahead.launches || time < run_ahead.nanos);) {
      ++ahead;
      time += durations[(position + uint64_t{iteration_launches} * kMaxAhead - ahead) % iteration_launches];
    }
    return ahead;
  }
  // The most launches that LaunchesAhead counts back: no driver queues more.
  static constexpr uint32_t kMaxAhead = 1024;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_PLAN_H_
