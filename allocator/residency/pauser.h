// Pauser: pauses blocks of one device, and resumes them. A paused block's gate is closed, launches that name
// it are refused or wait (ClaimQueue), and its bytes leave the GPU, dropped where its region does not keep
// them. The chunks go back to the driver while others still leave. Resumed blocks come back in the background
// in the order in which they are needed; a launch that names one does not wait for the others.
// DeviceResidency calls it on the thread of who pauses; the device's thread starts what leaves and what comes
// back. A pause fails where nothing may leave, or where host memory and disk have no place.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_PAUSER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_PAUSER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/pause.h"
#include "allocator/residency/transfer/soft_blocks.h"

namespace spillway::allocator {

class Charges;
class ClaimQueue;
class CleanCopies;
class Evictor;
class Faulter;
class PlannedUses;

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
    std::function<absl::Status()> release_free;  // Releaser::ReleaseFree
  };
  // `wake` makes the device's thread look again.
  Pauser(Core* core, const Parts& parts, std::function<void()> wake);

  // As Residency::Pause and Resume. Any thread, context current; waits.
  absl::Status Pause(const PauseScope& scope, PauseStats* stats);
  absl::Status Resume(const PauseScope& scope, bool wait);

  // As Residency::ReadPaused. Any thread.
  absl::Status Read(CUdeviceptr address, std::byte* to, uint64_t bytes) const;

  // ---- Device's thread.

  // Starts what may leave by now, and what may come back. True when something was started.
  bool Poll();
  // Whether something is still to leave or to come back.
  bool active() const { return active_; }

 private:
  // A block by its life.
  struct Entry {
    Block* block;
    uint32_t generation;
    // It had a long-term pin when the pause began: nothing was promised for it, and it does not leave, also when that pin
    // ends.
    bool stays = false;
  };
  // One call of Pause. Its thread owns it.
  struct Run {
    std::vector<Entry> leaving;
    PauseStats* stats;
    int64_t began = 0;
  };

  // Promises capacity for the blocks of the scope, marks them and closes their gates. May release the lock
  // before it marks.
  absl::Status MarkLocked(TableLock* lock, const PauseScope& scope, Run* run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Whether the entry needs no more looks: it has left, is another block's, is wanted again or must stay.
  // Then counts it.
  bool SettledLocked(const TableLock& lock, const Entry& entry, const Run& run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool StartLeavingLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // A paused block whose bytes are not kept gives up what it has of them. Not what is on the GPU before all
  // sections that were entered before the pause have been left.
  void DropLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  static bool PausedStill(const Entry& entry) {
    const Block& block = *entry.block;
    return block.allocation.generation == entry.generation && block.live() && block.paused();
  }
  // What was resumed since is put into the order of need.
  void OrderLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // The next block that is to come back, now on its way; null: none may now. `paused_again`: it was paused
  // while its chunks were made.
  Block* BeginReturnLocked(TableLock* lock, bool* paused_again)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Whether the entry is a block that still is to come back.
  static bool ReturnsLocked(const TableLock& lock, const Entry& entry);

  Core* const core_;
  Charges* const charges_;
  CleanCopies* const clean_;
  SoftBlocks* const soft_;
  Evictor* const evictor_;
  Faulter* const faulter_;
  const ClaimQueue* const claims_;
  const PlannedUses* const planned_;
  const std::function<absl::Status()> release_free_;
  const std::function<void()> wake_;

  std::vector<Run*> runs_ ABSL_GUARDED_BY(core_->table.mu);
  std::deque<Entry> returning_ ABSL_GUARDED_BY(core_->table.mu);  // in the order of need, once `ordered_`
  // The plan and the fetches under way are the device's thread's: it looks at them for who pauses or resumes.
  bool ordered_ ABSL_GUARDED_BY(core_->table.mu) = true;
  bool cancels_prefetches_ ABSL_GUARDED_BY(core_->table.mu) = false;
  bool active_ = false;  // device's thread
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_PAUSER_H_
