// PlanCopies: copies blocks out for a plan while they stay on the GPU, so that they leave later without a transfer. A
// copy closes the block's gate, and a launch that names the block takes it back: so one starts only in a gap between
// uses that is long enough, the most urgent first, few at a time.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_COPIES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_COPIES_H_

#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/evictor.h"
#include "policy/plan.h"

namespace spillway::allocator {

// Device's thread only.
class PlanCopies {
 public:
  // Nanoseconds, or as many launches as it gives, from now until the host names the block again.
  struct Gap {
    policy::LaunchIndex launches = 0;
    policy::Nanos nanos = 0;  // 0: not known
  };
  using GapOf = std::function<Gap(const Block&)>;

  PlanCopies(Core* core, Evictor* evictor) : core_(core), evictor_(evictor) {}

  void Reset();
  // The block's content is final; its copy is wanted before launch `wanted` has completed, when the block leaves.
  void Add(BlockId block, policy::LaunchIndex wanted, policy::PlanTier tier);
  // True when something was started. `gpu`: the first launch that has not completed.
  bool Step(policy::LaunchIndex gpu, const GapOf& gap_of);

 private:
  struct Entry {
    policy::LaunchIndex wanted = 0;
    uint32_t block = 0;  // BlockId::raw
    policy::PlanTier tier = policy::PlanTier::kHost;
    bool operator<(const Entry& other) const {
      return std::tie(wanted, block) < std::tie(other.wanted, other.block);
    }
  };

  bool LongEnough(const Block& block, policy::PlanTier tier, const Gap& gap) const;

  Core* const core_;
  Evictor* const evictor_;
  std::set<Entry> waiting_;
  std::vector<Entry> under_way_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PLAN_PLAN_COPIES_H_
