// The inside of SpillStore: its state, its lock, the way of a write and of a read, and the thread that grows files.
// spill_store_impl.cc holds transfers and the end; spill_space.cc holds slots and growth.

#ifndef SPILLWAY_IO_SPILL_STORE_IMPL_H_
#define SPILLWAY_IO_SPILL_STORE_IMPL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/completion_pool.h"
#include "io/os/sync.h"
#include "io/os/thread.h"
#include "io/probe.h"
#include "io/slot_table.h"
#include "io/spill_file.h"
#include "io/spill_store.h"
#include "io/stripe.h"
#include "io/transfer_queue.h"

namespace spillway::io {

class SpillStore::Impl {
 public:
  explicit Impl(SpillStoreOptions options);

  absl::Status Open();  // first, once

  absl::StatusOr<std::vector<SlotId>> ReserveSlots(size_t n);
  void ReleaseSlot(SlotId slot);
  void Write(SlotId slot, const void* data, uint32_t bytes, Done done);
  void Read(SlotId slot, void* data, uint32_t bytes, Priority priority, Done done);
  void Promote(SlotId slot);
  void CancelPrefetch(SlotId slot);
  SpillStoreStats stats();
  SpillCapacity capacity();
  void Shutdown();
  // After Shutdown: false when a thread is stuck in the kernel and may still call back. Then leak the object.
  bool MayBeFreed();
  void AbandonAfterFork();

 private:
  struct Directory {
    // Constant after Open.
    SpillDirectory settings;
    std::unique_ptr<SpillFile> file;
    std::shared_ptr<TransferQueue> queue;
    // Guarded by mu_ (of Impl).
    SlotTable table;
    uint64_t file_bytes = 0;
    uint64_t mismatches = 0;
    uint64_t failures = 0;       // transfers that failed for the disk's fault
    bool disk_full = false;      // a write into allocated space met a full disk: no more slots from here
    bool cannot_grow = false;    // as of the last try
    int64_t next_growth_at = 0;  // clock, ns: no try before, after one that failed
  };
  struct WriteState;
  struct ReadState;

  // Transfers.
  absl::Status PushTransfer(SlotId slot, IoOp op, TransferClass transfer_class, uint32_t bytes, char* data,
                            Done done);
  void FinishWrite(const std::shared_ptr<WriteState>& state);
  void StartRead(const std::shared_ptr<ReadState>& state, TransferClass transfer_class);
  void ReadArrived(const std::shared_ptr<ReadState>& state, const absl::Status& status);
  void VerifyRead(const std::shared_ptr<ReadState>& state);
  void FinishRead(const std::shared_ptr<ReadState>& state, absl::Status status);
  void NoteFailureLocked(Directory* directory, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PostDone(Done done, absl::Status status);
  Directory& DirectoryOf(SlotId slot);
  std::string Place(SlotId slot, uint32_t bytes) const;

  // Space.
  void LimitToPart(Directory* directory);  // in Open
  bool IsBad(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsUsable(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t FreeSlotsNow();
  uint64_t UsableFreeSlots() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ShortOfSlots(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<SlotId> TakeSlots(size_t n) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status NoRoom(size_t n) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GrowLoop();
  bool EndGrower(std::chrono::nanoseconds timeout);
  void GrowRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool GrowOnce(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const SpillStoreOptions options_;

  // Internally synchronised.
  CompletionPool pool_;
  std::vector<std::unique_ptr<Directory>> directories_;  // the list itself is constant after Open
  os::Thread grower_;                                    // started by Open, joined by Shutdown

  mutable os::Mutex mu_{os::LockRank::kSpillStore};
  os::CondVar grow_cv_;                              // grow_requests_ or stopped_ changed
  os::CondVar grown_cv_;                             // free slots, grow_served_ or stopped_ changed
  uint64_t grow_requests_ ABSL_GUARDED_BY(mu_) = 0;  // rounds asked for
  uint64_t grow_served_ ABSL_GUARDED_BY(mu_) = 0;    // request up to which rounds were begun and ended
  uint64_t wanted_slots_ ABSL_GUARDED_BY(mu_) = 0;   // of the callers that wait
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool grower_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool stuck_ ABSL_GUARDED_BY(mu_) = false;  // set by Shutdown
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_SPILL_STORE_IMPL_H_
