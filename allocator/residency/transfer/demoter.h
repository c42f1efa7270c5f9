// Demoter: moves bytes of blocks that have been spilled for long from host memory to the disk when the host tier is
// nearly full: what is evicted next then has the faster place. They are written to slots from where they lie, and
// the slot is their home from then on. The GPU has no part in it. A block that is fetched, or freed, meanwhile
// keeps its homes, and what was written for it is given up. What cannot be written stays. The device's thread
// alone calls it, but for figures.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_DEMOTER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_DEMOTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/soft_blocks.h"
#include "io/os/sync.h"

namespace spillway::allocator {

class Demoter {
 public:
  // `wake` makes the device's thread call Poll; called from I/O completion threads.
  Demoter(Core* core, SoftBlocks* soft, std::function<void()> wake);

  // Host buffers that a launch waits for, whatever has been there how long, and whether it needs an extent where it
  // is. Asked under the table's lock.
  struct Request {
    uint64_t buffers = 0;
    std::function<bool(const TableLock& lock, const Block& block, size_t extent)> keeps;
  };
  // Takes in what was written, and starts what is still to leave. True when something changed.
  bool Poll(const Request& request);
  bool idle() const { return jobs_.empty(); }

 private:
  struct Job {
    Block* block;
    uint32_t moves;  // of the block's states when the write began
    size_t extent;
    uint32_t bytes;  // of it
    PinnedBuffer buffer;
    PinnedBuffer staging;  // what is written, where no disk may read the buffer itself
    io::SlotId slot;
    int64_t began = 0;    // nanoseconds of the steady clock
    bool ended = false;   // guarded by results_mu_
    absl::Status status;  // likewise
  };

  bool CollectWrites();
  void FinishLocked(const TableLock& lock, const Job& job, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void StartLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
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
  std::vector<Job*> begun_;  // their writes are to be given to the disk, without the lock
  int64_t look_at_ = 0;      // steady clock, ns: the next look, unless a write ends before
  int64_t again_at_ = 0;     // likewise: nothing is started before, since something failed
  os::Mutex results_mu_{os::LockRank::kTier};  // what completion threads set in jobs
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_DEMOTER_H_
