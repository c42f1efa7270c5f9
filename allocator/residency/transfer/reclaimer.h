// Reclaimer: decides how much must leave the GPU, and which blocks: for the first claim in the queue, for a
// reserve, and for a budget that has fallen. It first decommits freed blocks. Then it evicts the block that
// is needed farthest ahead by the plan in force, or the least recently used one without a plan. It refuses
// the first claim when nothing is left that could free chunks. Only the device's thread calls it.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_RECLAIMER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_RECLAIMER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/free_addresses.h"
#include "allocator/residency/state/planned_uses.h"
#include "allocator/residency/transfer/claim_queue.h"
#include "allocator/residency/transfer/demoter.h"
#include "allocator/residency/transfer/evictor.h"
#include "allocator/residency/transfer/faulter.h"
#include "allocator/residency/transfer/link_probe.h"
#include "policy/model/units.h"
#include "policy/planner/victim_index.h"

namespace spillway::allocator {

class Reclaimer {
 public:
  struct Parts {
    Charges* charges = nullptr;
    const FreeAddresses* addresses = nullptr;
    Evictor* evictor = nullptr;
    Faulter* faulter = nullptr;
    ClaimQueue* claims = nullptr;
    PlannedUses* planned = nullptr;
    const LinkProbe* probe = nullptr;
    const Demoter* demoter = nullptr;
  };
  Reclaimer(Core* core, const Parts& parts);

  // Starts the evictions that are needed, and gives chunks above the budget back to the driver. Returns true
  // when something was done.
  bool Poll();
  // Whether chunks are missing, or the budget has fallen. Work that could not be done now is then tried again
  // after a while.
  bool waits_for_time() const { return waits_for_time_; }

 private:
  // Chunks that must become free: by giving up cached blocks only, and by any means.
  struct Missing {
    uint64_t cached_only = 0;
    uint64_t any = 0;
  };
  uint64_t ChunksComingLocked(const TableLock& lock) const;  // chunks that evictions will free before long
  Missing MissingChunksLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool StartEvictions();
  // Adds the first blocks of `index` that may leave, until they are `chunks` together: by their next use,
  // then by `idle_since`.
  void SelectLocked(const TableLock& lock, policy::VictimIndex* index, uint64_t chunks,
                    absl::FunctionRef<uint64_t(const Block&)> idle_since,
                    absl::FunctionRef<bool(const Block&)> may_leave, std::vector<Block*>* victims)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Adds blocks with nothing worth keeping, and returns their chunks. Adds unused live blocks only for
  // `demand`.
  uint64_t ChooseDecommitsLocked(const TableLock& lock, uint64_t chunks, bool demand,
                                 std::vector<Block*>* victims) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Adds live blocks until `chunks` are found. `demand` means that a launch waits, so blocks in use may go,
  // too.
  void ChooseVictimsLocked(const TableLock& lock, uint64_t chunks, bool demand, std::vector<Block*>* victims)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool IsIdle(const Block& block) const;
  // Refuses the first claim when nothing could free chunks for a while. `cancelled` means that chunks are on
  // their way.
  void RefuseIfStuckLocked(const TableLock& lock, bool cancelled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool EndEarlierPausesLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Evicts reached blocks for the first claim's sake. Refuses the claim when no host buffer comes free for a
  // while.
  bool FreeHostBuffers();
  void RefuseIfNoHostLocked(const TableLock& lock, uint64_t wanted, bool coming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Gives free chunks above the target back to the driver. Returns true when there was one.
  bool ReleaseExcess();

  Core* const core_;
  Charges* const charges_;
  const FreeAddresses* const addresses_;
  Evictor* const evictor_;
  Faulter* const faulter_;
  ClaimQueue* const claims_;
  PlannedUses* const planned_;
  const LinkProbe* const probe_;
  const Demoter* const demoter_;

  bool waits_for_time_ = false;
  // Time since which nothing could help this first claim, and the evictions and frees that were counted by
  // then.
  int64_t stuck_since_ = 0;
  uint64_t stuck_head_ = 0;
  int64_t head_since_ = 0;  // when this first claim was first seen
  uint64_t freed_then_ = 0;
  // The same for host buffers, and the number that was free.
  int64_t host_stuck_since_ = 0;
  int64_t recheck_at_ = 0;
  bool host_waits_ = false;  // the first claim waits for them, or for blocks that are to come back whole
  uint64_t host_stuck_head_ = 0;
  size_t host_free_then_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_RECLAIMER_H_
