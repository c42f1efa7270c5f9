// The implementation of SpillStore: its state, its one lock, the path of a write and of a read, and the
// threads that grow files. Only the spill_*.cc files include it.
// - spill_store_impl.cc: the beginning, statistics and the end.
// - spill_transfers.cc: writes and reads.
// - spill_space.cc: taking slots and giving them back, and waiting for capacity.
// - spill_growth.cc: the keepers, one thread per directory. Only they ask a file system for space.
// - spill_closed.cc: directories that are closed by errors or silence, and the probes that open them.
// - spill_moves.cc: bytes that leave a directory which stays closed.
//
// Threads: callers of the interface, the queue's thread of each directory, the completion workers, and the
// keepers. The interface (spill_store.h) documents the errors.

#ifndef SPILLWAY_IO_STORE_SPILL_STORE_IMPL_H_
#define SPILLWAY_IO_STORE_SPILL_STORE_IMPL_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "io/os/atomic.h"
#include "io/os/clock.h"
#include "io/os/sync.h"
#include "io/os/thread.h"
#include "io/os/wait.h"
#include "io/store/cipher_buffers.h"
#include "io/store/completion_pool.h"
#include "io/store/disk_order.h"
#include "io/store/node_share.h"
#include "io/store/probe.h"
#include "io/store/slot_table.h"
#include "io/store/spill_file.h"
#include "io/store/spill_store.h"
#include "io/store/stripe.h"
#include "io/store/transfer_queue.h"

namespace spillway::io {

class SpillStore::Impl {
 public:
  explicit Impl(SpillStoreOptions options);

  // Opens the directories and starts the threads. Called once, before everything else.
  absl::Status Open();

  uint64_t capacity_bytes() const { return capacity_.load(); }
  size_t drives() const;
  absl::Status GrowTo(uint64_t bytes);
  absl::StatusOr<std::vector<SlotId>> TakeSlots(size_t n);
  absl::StatusOr<std::vector<SlotId>> ReserveSlots(size_t n);
  void SetOwner(CapacityOwner* owner);
  void RecordPromise(uint64_t promised) {
    if (promised > low_watermark_.load(std::memory_order_relaxed)) PokeKeepers();
  }
  void PokeKeepers();
  void ReleaseSlot(SlotId slot);
  void Write(SlotId slot, const void* data, uint32_t bytes, Done done);
  void Read(SlotId slot, void* data, uint32_t bytes, Priority priority, Done done);
  void Promote(SlotId slot);
  void CancelPrefetch(SlotId slot);
  void GuessSpeed(size_t directory, const DriveSpeed& speed);
  SpillStoreStats stats();
  SpillSpace space();
  void Shutdown();
  // After Shutdown: returns false when a thread is stuck in the kernel and may still call back. The caller
  // then leaks the object.
  bool MayBeFreed();
  void AbandonAfterFork();

 private:
  // The result of a keeper's last question to its file system.
  struct Snapshot {
    int64_t at = -1;               // clock, ns: its beginning; -1: never yet
    SpillFile::Growable growable;  // less what was grown since; no space if the disk refused lately
    uint64_t free = 0;             // bytes beyond the reserve, as the file system reported
  };
  struct Directory {
    // Constant after Open.
    SpillDirectory settings;
    std::unique_ptr<SpillFile> file;
    std::shared_ptr<TransferQueue> queue;
    std::shared_ptr<DiskOrder> order;  // of the file system; its directories share it
    std::unique_ptr<NodeShare> share;  // of the cap; null: not shared. The keeper's, except for Close
    os::Thread keeper;                 // joined by Shutdown
    // Guarded by mu_ (of Impl).
    SlotTable table;
    uint64_t passed_over_bytes = 0;  // for Stripe
    uint64_t file_bytes = 0;
    uint64_t most_bytes = 0;  // with a share: upper limit of the file, by the last look
    uint64_t mismatches = 0;
    std::deque<int64_t> failed_at;  // clock, ns: transfers that failed within the window because of the disk
    bool silent = false;            // a request is late
    bool closed = false;            // after errors; a probe opens it
    std::string why_closed;         // the last error
    uint64_t times_closed = 0;
    std::string last_closure;               // WhyClosedLocked at that time
    int64_t opened_at = 0;                  // clock, ns: last opening by a probe; 0: never
    int64_t probe_at = 0;                   // clock, ns: beginning of the next probe
    int64_t probe_pause = 0;                // ns
    bool probing = false;                   // a probe is under way
    bool moving = false;                    // one of its slots moves to another directory
    int64_t moves_at = 0;                   // clock, ns: nothing moves before this while it is closed
    uint32_t move_next = 0;                 // where the search for the next slot begins
    uint64_t slots_moved = 0;               // to other directories
    std::unique_ptr<os::Wait> closed_wait;  // exists while capacity is wanted that may lie in it
    bool disk_full = false;  // a write into allocated space met a full disk: the directory gives no slots
    int64_t full_until = 0;  // clock, ns: next check of the full disk
    int64_t full_pause = 0;  // ns until the next check, doubled each time
    Snapshot snapshot;
    uint64_t growing_bytes = 0;  // bytes that the Grow call under way adds
    int64_t growing_since = 0;   // clock, ns: beginning of that call, or of a look; 0: none under way
    int64_t next_growth_at = 0;  // clock, ns: no growth before this, since the last one was refused
    int64_t surplus_since = 0;   // clock, ns: more slots are free than are needed ahead since then; 0: not so
    bool poked = true;           // the keeper has a reason to look now
    bool keeper_ended = false;
    bool in_use = false;  // at the end: a stuck transfer uses the file, which therefore stays open
  };
  // Whether the capacity can grow to a number of bytes. kUnknown: a keeper has not looked yet. kClosed: it
  // can when closed directories open again. kNotNow: the disks have too little free space. kNever: caps and
  // limits do not allow it.
  enum class CanGrow { kUnknown, kYes, kClosed, kNotNow, kNever };
  // A write has two parts that run at the same time, the transfer and the checksum. The part that ends last
  // finishes it.
  struct WriteState {
    SlotId slot;
    const void* data = nullptr;
    uint32_t bytes = 0;
    uint32_t generation = 0;
    Done done;
    bool retries = true;          // false: the first error counts
    std::shared_ptr<void> keeps;  // lives until the kernel no longer uses the buffer
    Checksum checksum;            // the checksum part writes it before it subtracts from `parts`
    absl::Status status;          // the transfer part does the same with this
    os::Atomic<int> parts{
        1};  // each part subtracts one; the part that reaches zero sees what the other wrote
  };

  struct ReadState {
    SlotId slot;
    char* data = nullptr;
    uint32_t bytes = 0;
    SlotTable::Contents expected;
    Done done;
    bool retries = true;          // false: the first error counts
    std::shared_ptr<void> keeps;  // as in a write
    bool second_try = false;
  };
  struct Probe;
  struct Move;

  // Transfers (spill_transfers.cc).
  absl::Status PushTransfer(SlotId slot, Transfer transfer);
  void StartWrite(const std::shared_ptr<WriteState>& state);
  void PushWrite(const std::shared_ptr<WriteState>& state, const void* data);
  void EncryptAndPush(const std::shared_ptr<WriteState>& state);
  void FinishWrite(const std::shared_ptr<WriteState>& state);
  void StartRead(const std::shared_ptr<ReadState>& state, TransferClass transfer_class);
  void ReadArrived(const std::shared_ptr<ReadState>& state, const absl::Status& status);
  void VerifyRead(const std::shared_ptr<ReadState>& state);
  absl::Status Decrypt(const ReadState& state) const;
  void FinishRead(const std::shared_ptr<ReadState>& state, absl::Status status);
  void RecordAnswer(SlotId slot);
  void RecordFailureLocked(Directory* directory, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PostDone(Done done, absl::Status status);
  std::shared_ptr<DiskOrder> OrderOf(const Directory& directory) const;
  // Returns null when the cap is not shared.
  static std::unique_ptr<NodeShare> ShareOf(const SpillDirectory& directory);
  Directory& DirectoryOf(SlotId slot);
  std::string Place(SlotId slot, uint32_t bytes) const;

  // Slots, and waiting for capacity (spill_space.cc).
  bool IsUsable(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t UsableFreeSlots() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<SlotId> PickSlotsLocked(size_t n) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateCapacityLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseFullLocked(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitForCapacityLocked(uint64_t bytes, os::Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t WaitEndsLocked(int64_t start) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  CanGrow CanGrowToLocked(uint64_t bytes, int64_t since) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RecordLaterProcessesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RecordShortageLocked(CanGrow can_grow) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status NoCapacity(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Paths() const;

  // Directories that are closed by errors or silence (spill_closed.cc).
  bool IsClosed(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t WhenOpenLocked(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string WhyClosedLocked(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string ClosedDirectoriesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ProbeForLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseFailingLocked(Directory* directory, const std::string& after, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RecordSilence(size_t index, bool silent);
  int64_t TurnOfClosedLocked(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartProbe(const std::shared_ptr<Probe>& probe);
  void ReadBack(const std::shared_ptr<Probe>& probe);
  void EndProbe(const std::shared_ptr<Probe>& probe, const absl::Status& status);
  void OpenLocked(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t IndexOf(const Directory& directory) const;

  // Moves out of a directory that stays closed (spill_moves.cc).
  SlotId HomeOf(SlotId slot) const {
    os::MutexLock lock(&mu_);
    return HomeOfLocked(slot);
  }
  SlotId HomeOfLocked(SlotId slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Move> NextMoveLocked(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayTakeForMoveLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartMove(const std::shared_ptr<Move>& move);
  void WriteMoved(const std::shared_ptr<Move>& move);
  void EndMove(const std::shared_ptr<Move>& move, const absl::Status& status);

  // The keepers (spill_growth.cc).
  void KeepLoop(Directory* directory);
  int64_t TurnLocked(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  SpillFile::Growable SpaceOf(const Directory& directory, uint64_t file_bytes, uint64_t most_bytes) const;
  void ScanLocked(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ReopenLocked(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t GrowthLocked(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t GrowthForNeedLocked(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t GrowthAheadLocked(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t FreeBytesLocked(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PokeShortLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool GrowLocked(Directory* directory, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveBackLocked(Directory* directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t NextTurnLocked(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t WantedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t FeasibleLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t NeededLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t SpareLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t AheadOf(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t ActiveLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StuckLocked(const Directory& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PokeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool EndKeeper(Directory* directory, os::SteadyClock::time_point deadline);

  SpillStoreOptions options_;  // constant after Open

  // Internally synchronized.
  std::unique_ptr<CompletionPool> pool_;                 // null until Open
  const std::shared_ptr<CipherBuffers> cipher_buffers_;  // the kernel may be the last to use one
  std::vector<std::unique_ptr<Directory>> directories_;  // the list itself is constant after Open
  os::WaitList own_waits_;
  os::WaitList* const waits_;
  const int64_t opened_at_;           // clock, ns
  os::Atomic<uint64_t> capacity_{0};  // written under mu_ by UpdateCapacityLocked
  // Promises beyond this make the keepers grow files ahead of need. Written under mu_, read by RecordPromise.
  os::Atomic<uint64_t> low_watermark_{0};
  os::Atomic<bool> ending_{false};  // set by Shutdown: ends growth by writing

  mutable os::Mutex mu_{os::LockRank::kSpillStore};
  os::CondVar keep_cv_;   // a directory's `poked`, stopped_ or close_files_ changed
  os::CondVar grown_cv_;  // capacity, a look, stopped_ or a keeper's end
  std::list<uint64_t> demands_ ABSL_GUARDED_BY(mu_);  // bytes of capacity that callers of GrowTo wait for
  uint64_t asked_capacity_ ABSL_GUARDED_BY(mu_) =
      0;                                          // bytes that TakeSlots lately would have needed; 0: enough
  int64_t asked_since_ ABSL_GUARDED_BY(mu_) = 0;  // clock, ns: the first such TakeSlots
  int64_t asked_last_ ABSL_GUARDED_BY(mu_) = 0;   // clock, ns: the last such TakeSlots
  int64_t short_since_ ABSL_GUARDED_BY(mu_) =
      0;  // clock, ns: since then the disks lack free space; 0: they do not
  int64_t gained_at_ ABSL_GUARDED_BY(mu_) = 0;  // clock, ns: capacity, or a disk's free space, last grew
  int64_t later_seen_at_ ABSL_GUARDED_BY(mu_) =
      0;  // clock, ns: processes that began later were last seen on a disk
  CapacityOwner* owner_ ABSL_GUARDED_BY(mu_) = nullptr;  // null: the slots in use are needed
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool close_files_ ABSL_GUARDED_BY(mu_) = false;  // the queues have ended, or never will
  bool stuck_ ABSL_GUARDED_BY(mu_) = false;        // set by Shutdown
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SPILL_STORE_IMPL_H_
