// PlanCursor decides when an op of a MigrationPlan may start. It follows the GPU's progress through the
// plan's ops and has its PlanMover begin those that may start. It keeps no clock, moves no bytes and takes no
// lock. PlanRunner drives it by the completions on a device, BlockMachine and tests by those of a simulated
// job. One thread at a time. No call fails: an op that cannot start is left out, and its block moves on
// demand.
//
// The rules:
// - A drop starts when its launch has completed. It is left out if the host has used the block again since,
//   or if half of the idle interval is over: the block would hardly be away. It waits for a copy out of the
//   block that is under way.
// - A copy out may start when its launch has completed, in an idle interval of the block that is long enough
//   for it: a launch that names the block takes the copy back. The most urgent copy goes first, few are under
//   way at a time, and a copy to the disk waits for the plan's evictions to it. A copy whose drop has come is
//   made with the drop.
// - A fetch enters the queue of its tier at its earliest start; queues are in the order of need. It starts
//   when there is headroom during all launches up to its need, and free memory now. A fetch whose need the
//   host has reached needs only the memory. A fetch that must wait blocks its own queue, not the other.

#ifndef SPILLWAY_POLICY_MODEL_PLAN_CURSOR_H_
#define SPILLWAY_POLICY_MODEL_PLAN_CURSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "policy/model/headroom.h"
#include "policy/model/plan.h"
#include "policy/model/units.h"

namespace spillway::policy {

// The low half of a TraceBlock: the block's id, whichever tensor it belongs to.
using PlanBlock = uint32_t;

// A block as its mover sees it now.
struct PlanBlockView {
  enum class Place : uint8_t {
    kOnGpu,     // its content is there
    kLeaving,   // being copied out, to be dropped or not
    kDraining,  // there, but what was copied out and then taken back has not ended yet
    kAway,      // its content lies elsewhere
    kArriving,  // on its way back
    kOther,     // nowhere, or on its way by other means
  };
  Place place = Place::kOther;
  bool live = false;                         // allocated and not freed
  bool may_leave = false, may_copy = false;  // kOnGpu: nothing prevents an eviction; a copy out
  bool may_return = false;                   // kAway: nothing prevents a fetch
  bool copied = false;                       // kOnGpu: a copy from before lies elsewhere
  PlanTier tier = PlanTier::kHost;           // kAway: where it comes from
  Bytes bytes = 0;                           // that it takes on the GPU
  Bytes copy_bytes = 0;                      // that a copy out moves
  Bytes free_bytes = 0;                      // of the GPU's memory
  LaunchIndex used = 0;  // the last launch that names it of those that passed the gate, plus 1; 0: none
};

enum class PlanMove : uint8_t { kNothing, kEvict, kCopyOut, kFetch };

// Moves blocks for a PlanCursor, and knows where they are.
class PlanMover {
 public:
  virtual ~PlanMover() = default;

  // Shows `decide` the block and begins the move that it returns; nothing else can touch the block in
  // between. `tier`: of a copy out or eviction. True when a move has begun.
  virtual bool Visit(PlanBlock block, PlanTier tier,
                     absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) = 0;
  // Whether the launch has completed on the GPU. Launches of several streams complete in any order.
  virtual bool Completed(LaunchIndex launch) = 0;
  // Launches before this one have passed the gate.
  virtual LaunchIndex Launched() const = 0;
  // Whether `fetches` fetches under way from the tier, of `bytes` bytes together, are enough for now.
  virtual bool IsBusy(PlanTier tier, size_t fetches, Bytes bytes) const = 0;
  // Bytes per second that copies out to the tier have reached; 0: not known.
  virtual double RateOut(PlanTier tier) const = 0;
};

class PlanCursor {
 public:
  explicit PlanCursor(PlanMover* mover) : mover_(*mover) {}

  // Puts `plan` in force; with null the cursor does nothing. Moves under way go on. `gpu`: launches before it
  // have completed.
  void Reset(std::shared_ptr<const MigrationPlan> plan, LaunchIndex gpu);
  bool active() const { return plan_ != nullptr; }

  // Begins the moves that may start now. True when a move has begun or ended. `gpu`: launches before it have
  // completed. `memory_wanted`: a launch waits for memory, so nothing is fetched ahead.
  bool Poll(LaunchIndex gpu, bool memory_wanted);
  // Records that a block of `bytes` bytes leaves outside of the plan: it is fetched for its next use.
  void RecordUnplanned(PlanBlock block, Bytes bytes, LaunchIndex gpu);

  // The bytes that must be free for a fetch that may start otherwise; 0: no fetch waits for memory alone.
  Bytes bytes_wanted() const { return bytes_wanted_; }
  // The launch from which next uses count: the host's place, or the plan's start if that is later.
  LaunchIndex Now() const;
  // The first launch from `from` on that uses the block by the plan; kNever without a plan or a use.
  LaunchIndex NextUse(PlanBlock block, LaunchIndex from) const;

 private:
  // A list of ops that comes round once an iteration, and the op whose turn it is.
  struct Turn {
    std::vector<PlanOp> ops;  // by launch
    uint64_t iteration = 0;   // gone through since the plan's start
    size_t at = 0;
    const PlanOp& op() const { return ops[at]; }
    void Next() {
      if (++at < ops.size()) return;
      at = 0;
      ++iteration;
    }
  };
  struct Copy {
    LaunchIndex wanted = 0;
    PlanBlock block = 0;
    PlanTier tier = PlanTier::kHost;
    bool operator<(const Copy& other) const {
      return std::tie(wanted, block) < std::tie(other.wanted, other.block);
    }
  };
  struct Drop {
    LaunchIndex used = 0;  // the launch after which the block may go
    PlanBlock block = 0;
    PlanTier tier = PlanTier::kHost;
  };
  struct Fetch {
    LaunchIndex due = 0;  // the block must be there when this launch comes
    PlanBlock block = 0;
    LaunchIndex use = 0;  // the block's next use, after which the fetch is of no use
    bool operator<(const Fetch& other) const {
      return std::tie(due, block, use) < std::tie(other.due, other.block, other.use);
    }
  };
  struct FetchUnderWay {
    Fetch fetch;
    LaunchIndex from = 0;  // counted in headroom_ from here on
    Bytes bytes = 0;
    PlanTier tier = PlanTier::kHost;
  };
  // An idle interval from where the host is to a block's next use.
  struct Gap {
    LaunchIndex launches = 0;
    Nanos nanos = 0;  // 0: not known
  };
  enum class Start : uint8_t { kNothingToDo, kStarted, kMustWait };
  using Blocked = std::array<bool, 2>;  // by tier

  void SortOps();
  void PlaceTurns();
  void AddWhatIsAway();
  LaunchIndex IndexOf(uint64_t iteration, uint32_t position) const;
  LaunchIndex NeededAt(const Turn& turn) const;

  bool PollEvictions();
  bool TryDrop(const Drop& drop);
  bool PollCopies();
  void ScanCopiesUnderWay();
  Gap GapBefore(PlanBlock block) const;
  bool LongEnough(const Copy& copy, Bytes bytes) const;
  void QueueFetches();
  bool PollFetches();
  void WaitToFetch(PlanTier tier, const Fetch& fetch);
  bool ScanFetchesUnderWay();
  Start TryFetch(const Fetch& fetch, Blocked* blocked, PlanTier* seen);
  bool IsBusy(PlanTier tier) const;

  PlanMover& mover_;
  std::shared_ptr<const MigrationPlan> plan_;
  LaunchIndex gpu_ = 0;
  std::vector<Nanos> starts_;  // by position, and the iteration's length; empty: durations are not known
  std::unordered_map<PlanBlock, std::vector<uint32_t>> uses_;  // positions, ascending
  Turn evictions_, copies_, fetches_;
  std::vector<Drop> drops_waiting_;  // for copies that are under way
  std::set<Copy> copies_waiting_;
  std::vector<Copy> copies_under_way_;
  std::vector<Drop> disk_evictions_under_way_;  // of the plan; in PollCopies without those that have ended
  // One set for each tier: that where the block was seen last, or else the plan's.
  std::array<std::set<Fetch>, 2> fetches_waiting_;
  std::vector<FetchUnderWay> fetches_under_way_;
  Headroom headroom_;
  Bytes bytes_wanted_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_PLAN_CURSOR_H_
