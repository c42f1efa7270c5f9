// PlanFetches: brings blocks back for a plan. Two queues, one per lane (host memory, disk), each in the order of need; a
// fetch starts when the room of all launches up to its need allows and there are free chunks now; what the host asks
// for next needs only the chunks. One that must wait holds up its own lane, not the other.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_FETCHES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_FETCHES_H_

#include <array>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "allocator/residency/plan/plan_headroom.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/launch_log.h"
#include "allocator/residency/transfer/faulter.h"

namespace spillway::allocator {

// Device's thread only.
class PlanFetches {
 public:
  PlanFetches(Core* core, Charges* charges, const LaunchLog* log, Faulter* faulter)
      : core_(core), charges_(charges), log_(log), faulter_(faulter) {}

  // Forgets what it was to bring; fetches under way go on.
  void Reset(std::shared_ptr<const policy::MigrationPlan> plan, policy::LaunchIndex now);
  // The block is to be there when launch `due` comes, and is of no use any more after launch `use`, its next use.
  void Add(BlockId block, policy::LaunchIndex due, policy::LaunchIndex use);
  // A block leaves outside the plan: it has less on the GPU until it is used again.
  void NoteUnplanned(const Block& block, policy::LaunchIndex now, policy::LaunchIndex use);
  // Starts what may start. `gpu`: the first launch that has not completed. True when something was started.
  bool Step(policy::LaunchIndex gpu);
  // Chunks that a fetch lacks which may start but for them; 0 when none does.
  uint64_t chunks_wanted() const { return chunks_wanted_; }

 private:
  enum Lane : uint8_t { kHost, kDisk, kLanes };
  struct Entry {
    policy::LaunchIndex due = 0;
    uint32_t block = 0;  // BlockId::raw
    policy::LaunchIndex use = 0;
    bool operator<(const Entry& other) const {
      return std::tie(due, block, use) < std::tie(other.due, other.block, other.use);
    }
  };
  struct UnderWay {
    Entry entry;
    policy::LaunchIndex from = 0;  // counted in room_ from here on
    uint64_t bytes = 0;
    Lane lane = kHost;
  };
  enum class Start { kNothingToDo, kStarted, kMustWait, kGone };

  bool LookAtUnderWay(policy::LaunchIndex gpu);
  Start TryStart(const Entry& entry, policy::LaunchIndex gpu, std::array<bool, kLanes>* held_up);
  bool LaneIsFull(Lane lane) const;

  Core* const core_;
  Charges* const charges_;
  const LaunchLog* const log_;
  Faulter* const faulter_;
  PlanRoom room_;
  std::set<Entry> waiting_;
  std::vector<UnderWay> under_way_;
  uint64_t chunks_wanted_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_FETCHES_H_
