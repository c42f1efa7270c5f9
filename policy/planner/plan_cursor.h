// PlanCursor: when an op of a MigrationPlan may start. Told how far the GPU is, it goes through the plan's ops and has its
// PlanMover begin those whose turn has come. Keeps no clock, moves no bytes, takes no lock: PlanRunner drives it by what
// completes on a device, tests by what a simulated job does. One thread; nothing fails: what cannot be begun is left out,
// and costs what moving on demand costs.
//
// The rules:
// - A drop starts when its launch has completed, unless the host has used the block again since, or half of the time for
//   which it would be away is over.
// - A copy out waits from its launch's completion for an idle interval between two uses that is long enough, the most
//   urgent first, few at a time; once its drop has come, that is when it is made.
// - A fetch waits from its earliest start, in one queue per tier, in the order of need, until there is headroom during all
//   launches up to its need and free memory now; what the host asks for next needs only the memory. One that must wait
//   holds up its own queue, not the other.

#ifndef SPILLWAY_POLICY_PLANNER_PLAN_CURSOR_H_
#define SPILLWAY_POLICY_PLANNER_PLAN_CURSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "policy/planner/plan.h"
#include "policy/simulator/headroom.h"
#include "policy/trace/units.h"

namespace spillway::policy {

// The low half of a TraceBlock: a block whoever it is handed out to.
using PlanBlock = uint32_t;

// A block as it is now, to whoever moves it.
struct PlanBlockView {
  enum class Place : uint8_t {
    kOnGpu,     // its content is there
    kLeaving,   // being copied out, to be dropped or not
    kAway,      // its content lies elsewhere
    kArriving,  // on its way back
    kOther,     // nowhere, or on its way by other means
  };
  Place place = Place::kOther;
  bool live = false;  // handed out and not freed
  // kOnGpu: nothing is in the way of its leaving; of a copy out. kAway: of its coming back.
  bool may_leave = false, may_copy = false, may_return = false;
  bool copied = false;              // kOnGpu: a copy from before lies elsewhere
  PlanTier tier = PlanTier::kHost;  // kAway: where it comes from
  Bytes bytes = 0;                  // that it takes on the GPU
  Bytes copy_bytes = 0;             // that a copy out moves
  Bytes free_bytes = 0;             // of the GPU's memory
  LaunchIndex used = 0;  // the launch that the host let go last of those that name it, plus 1; 0: none
};

enum class PlanMove : uint8_t { kNothing, kEvict, kCopyOut, kFetch };

// Moves blocks for a PlanCursor, and knows where they are.
class PlanMover {
 public:
  virtual ~PlanMover() = default;

  // Shows `decide` the block and begins the move that it asks for, before anybody else can touch the block. True when a
  // move was begun.
  virtual bool Visit(PlanBlock block, PlanTier tier,
                     absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) = 0;
  // Whether the launch has completed on the GPU. Launches of several streams complete in any order.
  virtual bool Completed(LaunchIndex launch) = 0;
  // Launches before this one have been let go by the host.
  virtual LaunchIndex Launched() const = 0;
  // Whether so many fetches of so many bytes under way from the tier are enough.
  virtual bool IsBusy(PlanTier tier, size_t fetches, Bytes bytes) const = 0;
  // Bytes per second that copies out to the tier have reached; 0: not known.
  virtual double RateOut(PlanTier tier) const = 0;
};

class PlanCursor {
 public:
  explicit PlanCursor(PlanMover* mover) : mover_(*mover) {}

  // Null: nothing is to be done. Moves under way go on. `gpu`: launches before it have completed.
  void Reset(std::shared_ptr<const MigrationPlan> plan, LaunchIndex gpu);
  bool active() const { return plan_ != nullptr; }

  // Begins what may start now; true when something was begun or has ended. `room_wanted`: a launch waits for memory, so
  // that nothing is fetched ahead.
  bool Poll(LaunchIndex gpu, bool room_wanted);
  // A block of so many bytes leaves outside the plan.
  void NoteUnplanned(PlanBlock block, Bytes bytes, LaunchIndex gpu);

  // Bytes that a fetch lacks which may start but for them; 0 when none does.
  Bytes bytes_wanted() const { return bytes_wanted_; }
  // The launch that next uses a block is reckoned from here on: the host's place, or the plan's start.
  LaunchIndex Now() const;
  // The first launch from `from` on that uses the block by the plan; kNever without a plan or a use.
  LaunchIndex NextUse(PlanBlock block, LaunchIndex from) const;
  // Whether evictions are still to come whose launches the host has let go already.
  bool EvictionsToCome() const;

 private:
  // A place in a list of ops that is gone through once an iteration.
  struct Turn {
    std::vector<PlanStep> ops;  // by launch
    uint64_t iteration = 0;     // gone through since the plan's start
    size_t at = 0;
    const PlanStep& op() const { return ops[at]; }
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
  struct Fetch {
    LaunchIndex due = 0;  // to be there when this launch comes
    PlanBlock block = 0;
    LaunchIndex use = 0;  // of no use any more after this one, its next use
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
  enum class Start : uint8_t { kNothingToDo, kStarted, kMustWait, kGone };
  using HeldUp = std::array<bool, 2>;  // by tier

  void SortOps();
  void PlaceTurns();
  void AddWhatIsAway();
  LaunchIndex IndexOf(uint64_t iteration, uint32_t position) const;
  LaunchIndex NeededAt(const Turn& turn) const;

  bool PollEvictions();
  bool PollCopies();
  void LookAtCopiesUnderWay();
  Gap GapBefore(PlanBlock block) const;
  bool LongEnough(const Copy& copy, Bytes bytes) const;
  void QueueFetches();
  bool PollFetches();
  bool LookAtFetchesUnderWay();
  Start TryFetch(const Fetch& fetch, HeldUp* held_up);
  bool IsBusy(PlanTier tier) const;

  PlanMover& mover_;
  std::shared_ptr<const MigrationPlan> plan_;
  LaunchIndex gpu_ = 0;
  std::vector<Nanos> starts_;  // by position, and the iteration's length; empty: durations are not known
  std::unordered_map<PlanBlock, std::vector<uint32_t>> uses_;  // positions, ascending
  Turn evictions_, copies_, fetches_;
  std::set<Copy> copies_waiting_;
  std::vector<Copy> copies_under_way_;
  std::set<Fetch> fetches_waiting_;
  std::vector<FetchUnderWay> fetches_under_way_;
  Headroom headroom_;
  Bytes bytes_wanted_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_PLAN_CURSOR_H_
