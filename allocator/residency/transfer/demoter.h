// Demoter: moves bytes of blocks that have been spilled for long from host memory to the disk when the host
// tier is nearly full, so that the next evictions have the faster place. It writes the bytes to slots from
// where they lie, and the slot is their home from then on; the GPU has no part in it. A block that is fetched
// or freed meanwhile keeps its homes, and its write is given up. Bytes that cannot be written stay, and so do
// blocks that the plan in force uses again, unless they are paused. Only the device's thread calls it, except
// for metrics.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_DEMOTER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_DEMOTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/planned_uses.h"
#include "allocator/residency/transfer/soft_blocks.h"
#include "io/os/sync.h"

namespace spillway::allocator {

class Demoter {
 public:
  // `wake` makes the device's thread call Poll; it is called from I/O completion threads.
  Demoter(Core* core, SoftBlocks* soft, std::function<void()> wake);

  // The host buffers for which a launch waits; bytes are then moved however short their stay has been.
  // `keeps` tells whether the launch needs an extent where it is; it is called under the table's lock.
  struct Request {
    uint64_t buffers = 0;
    std::function<bool(const TableLock& lock, const Block& block, size_t extent)> keeps;
  };
  // Takes in the writes that have ended, and starts those that are still to be made. `planned`: what it uses
  // again stays, unless a launch waits. Returns true when something changed.
  bool Poll(const Request& request, const PlannedUses& planned);
  bool idle() const { return jobs_.empty(); }

 private:
  struct Job {
    Block* block;
    uint32_t moves;  // the block's count of moves when the write began
    size_t extent;
    uint32_t bytes;  // bytes of the extent
    PinnedBuffer buffer;
    PinnedBuffer staging;  // source of the write, where no disk may read the buffer itself
    io::SlotId slot;
    int64_t began = 0;    // nanoseconds of the steady clock
    bool ended = false;   // guarded by results_mu_
    absl::Status status;  // guarded by results_mu_
  };

  bool CollectWrites();
  void FinishLocked(const TableLock& lock, const Job& job, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void StartLocked(const TableLock& lock, const PlannedUses& planned)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool StartBlockLocked(const TableLock& lock, Block* block, uint64_t wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  uint64_t WantedBuffers() const;
  int64_t PauseNanos() const;
  bool TakeStaging(PinnedBuffer* staging);
  bool TakeSlot(io::SlotId* slot);
  bool UnderWay(const Block& block, size_t extent) const;

  Core* const core_;
  SoftBlocks* const soft_;
  const std::function<void()> wake_;
  std::vector<std::unique_ptr<Job>> jobs_;
  Request request_;          // of the last Poll
  std::vector<Job*> begun_;  // jobs whose writes are to be given to the disk, without the lock
  int64_t scan_at_ = 0;      // next look in ns of the steady clock, unless a write ends before
  int64_t again_at_ = 0;     // nothing starts before this time, since something failed
  os::Mutex results_mu_{os::LockRank::kTier};  // guards the fields of jobs that completion threads set
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_DEMOTER_H_
