// Pauser: pauses blocks of one device, and resumes them. A pause closes the gate of its blocks, so that
// launches that name one are refused or wait (ClaimQueue). Their bytes leave the GPU; they are dropped if the
// block's region does not keep them. Chunks go back to the driver while other blocks are still leaving.
// Resumed blocks come back in the background, in the order in which they are needed; a launch that names one
// does not wait for the others.
//
// DeviceResidency calls it on the thread that pauses or resumes. The device's thread starts the transfers in
// both directions. A pause fails where nothing may leave, or when host memory and disk have no place.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PAUSER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PAUSER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/pause.h"
#include "allocator/residency/state/planned_uses.h"
#include "allocator/residency/transfer/soft_blocks.h"

namespace spillway::allocator {

class Charges;
class ClaimQueue;
class CleanCopies;
class Evictor;
class Faulter;

class Pauser {
 public:
  struct Parts {
    Charges* charges = nullptr;
    CleanCopies* clean = nullptr;
    SoftBlocks* soft = nullptr;
    Evictor* evictor = nullptr;
    Faulter* faulter = nullptr;
    const ClaimQueue* claims = nullptr;
    const PlannedUses* planned = nullptr;
    std::function<absl::Status()> release_free, empty_cache;  // of the Releaser
  };
  // `wake` makes the device's thread look again.
  Pauser(Core* core, const Parts& parts, std::function<void()> wake);

  // Residency::Pause and Residency::Resume. Any thread, with the context current; both wait.
  absl::Status Pause(const PauseScope& scope, PauseStats* stats);
  absl::Status Resume(const PauseScope& scope, bool wait);

  // Residency::ReadPaused. Any thread.
  absl::Status Read(CUdeviceptr address, std::byte* to, uint64_t bytes) const;

  // ---- Device's thread.

  // Starts the blocks that may leave by now, and those that may come back. Returns true when one was started.
  bool Poll();
  // Whether blocks are still to leave or to come back.
  bool active() const { return active_; }

 private:
  // A block in one of its lives.
  struct Entry {
    Block* block;
    uint32_t generation;
    // The block had a long-term pin when the pause began. Nothing was promised for it, so it does not leave,
    // even when that pin ends.
    bool stays = false;
    bool operator==(const Entry& other) const {
      return block == other.block && generation == other.generation;
    }
  };
  // One call of Pause; its thread owns it.
  struct Run {
    std::vector<Entry> leaving = {};
    std::vector<Entry> staying = {};  // counted as pinned or failed
    PauseStats* stats = nullptr;
    int64_t began = 0;
  };

  // Waits until all that is to leave has left or stays. Memory goes back to the driver meanwhile.
  absl::Status AwaitLeaving(Run* run, const os::Wait& wait);
  // Promises capacity for the blocks of the scope, marks them and closes their gates. May release the lock
  // before it marks.
  absl::Status MarkLocked(TableLock* lock, const PauseScope& scope, Run* run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Adds the blocks that were handed out since everything was paused from outside, with the memory of freed
  // ones. Returns whether there were any.
  bool AddHandedOutLocked(const TableLock& lock, Run* run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Whether the entry is done: its block has left, belongs to another life, is wanted again or must stay. A
  // block that is done is counted in the stats.
  bool SettledLocked(const TableLock& lock, const Entry& entry, Run* run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool StartLeavingLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Gives up the bytes that a paused block has, if they are not kept. Bytes on the GPU are given up only
  // after all sections that were entered before the pause have been left.
  void DropLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  static bool PausedStill(const Entry& entry) {
    const Block& block = *entry.block;
    return block.allocation.generation == entry.generation && block.live() && block.paused();
  }
  // Puts the blocks that were resumed meanwhile into the order of need.
  void OrderLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Begins the return of the next block that is to come back, and returns the block; null when none may come
  // back now. `paused_again` tells that the block was paused while its chunks were made.
  Block* BeginReturnLocked(TableLock* lock, bool* paused_again)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Whether the entry's block is still to come back.
  static bool ReturnsLocked(const TableLock& lock, const Entry& entry);

  Core* const core_;
  Charges* const charges_;
  CleanCopies* const clean_;
  SoftBlocks* const soft_;
  Evictor* const evictor_;
  Faulter* const faulter_;
  const ClaimQueue* const claims_;
  const PlannedUses* const planned_;
  const std::function<absl::Status()> release_free_, empty_cache_;
  const std::function<void()> wake_;

  std::vector<Run*> runs_ ABSL_GUARDED_BY(core_->table.mu);
  std::deque<Entry> returning_ ABSL_GUARDED_BY(core_->table.mu);  // in the order of need, once `ordered_`
  // Only the device's thread may use the plan and the fetches under way. It does so for the threads that
  // pause or resume, which set these flags.
  bool ordered_ ABSL_GUARDED_BY(core_->table.mu) = true;
  bool cancels_prefetches_ ABSL_GUARDED_BY(core_->table.mu) = false;
  bool active_ = false;  // device's thread
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PAUSER_H_
