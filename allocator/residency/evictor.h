// Evictor: takes blocks off the GPU, in phases: close the gate, wait for the last use, copy out, unmap (the commit
// point), publish. Blocks with nothing worth keeping (cached, or handed out and not used since) are stripped: the
// same without the copy. Which blocks go, and to which tier rather, is decided by its caller; what the bytes' new home
// is, here: the tier asked for, then the other.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_EVICTOR_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_EVICTOR_H_

#include <deque>
#include <memory>
#include <vector>

#include "allocator/residency/core.h"
#include "allocator/residency/transfer.h"
#include "policy/planner/plan.h"

namespace spillway::allocator {

// One eviction or strip under way. Touched by the device's thread only, but for what is guarded.
struct EvictJob {
  // In this order, but for kCompare, which comes before kCopy.
  enum class Phase { kStarted, kWaitForUses, kCopy, kCommit, kDone, kCompare };
  // A chunk on its way to disk through staging.
  struct StagedChunk {
    size_t chunk = 0;
    HostPiece piece;
    CUevent copied = nullptr;  // null once the write has been submitted
  };

  Block* block = nullptr;   // null once a cancelled job has let it go
  uint32_t generation = 0;  // of the block's life whose bytes these are
  bool strip = false;
  policy::PlanTier tier = policy::PlanTier::kHost;  // where the bytes go if there is room; else to the other
  Phase phase = Phase::kStarted;
  std::vector<Stamp> uses;        // what must complete before the bytes are final
  std::vector<ChunkHome> homes;   // reserved for the bytes; empty for a strip
  CUevent host_copied = nullptr;  // all chunks that go to host memory
  bool host_enqueued = false;
  uint64_t host_bytes = 0;  // of host_copied, until it was seen to have completed
  size_t next_disk_chunk = 0;
  std::vector<StagedChunk> staged;
  size_t writes_under_way = 0;
  bool stays = false;  // copied out only: the block is resident again afterwards
  // `homes` hold what `content` is the hash of: good to be kept if the block stays. Of a copy from before it is known
  // from the start; of one that this job makes once both have ended and nobody has taken the block (EndCopy).
  bool holds_copy = false;
  bool clean = false;          // the copy from before is the block's content: nothing to write
  bool content_known = false;  // of the bytes that are, or will be, at `homes`
  ContentHash content;
  DeviceHash::Request hash;  // under way while `hashed` is not null
  CUevent hashed = nullptr;
  absl::Status failure;  // first copy or write that failed: ends like a cancel

  bool cancelled = false;  // guarded by the table's lock
  bool committed = false;  // guarded by the table's lock: too late to cancel
  bool moving = false;  // guarded by the table's lock: may map, copy and unmap; audited launches wait for it
};

class Evictor {
 public:
  // `wake` makes the device's thread run Step; called from I/O completion threads.
  Evictor(Core* core, CopyStreams* copies, std::function<void()> wake);
  ~Evictor();

  // Starts taking these blocks off the GPU: kResident, kCached, unpinned, not held, without transfer. Gates close
  // here; the device's thread goes on from there. `tier` is tried first for the bytes. Any thread.
  void StartLocked(const std::vector<Block*>& victims, policy::PlanTier tier = policy::PlanTier::kHost);
  // Copies the block, which must be free to leave, out to that tier while it stays on the GPU: its next eviction then
  // moves nothing if it has not changed. A launch that names it meanwhile takes the copy back. False, and nothing
  // happens, while there is no hash to check that by, or nothing to copy. Any thread.
  bool CopyOutLocked(Block* block, policy::PlanTier tier);
  // Takes an eviction or strip back before its commit point; true when the block is usable again. Any thread.
  static bool CancelLocked(Core* core, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core->table.mu);

  // Moves every job on as far as it can go without waiting. True when something changed. Device's thread.
  bool Step();
  // Chunks that jobs under way will free, cancelled ones not counted.
  uint64_t chunks_coming() const {
    core_->table.mu.AssertHeld();
    return chunks_coming_;
  }
  bool idle() const { return jobs_.empty(); }
  // Whether a job is under way that may yet give chunks or room: none of those that have failed before. Under the
  // table's lock, device's thread.
  bool HasHope() const;
  // Evictions that failed, and the first failure since ForgetFailures. Device's thread.
  uint64_t failures() const { return failures_; }
  const absl::Status& first_failure() const { return first_failure_; }
  void ForgetFailures() { first_failure_ = absl::OkStatus(); }
  // Jobs that were taken back, by the phase that they had reached (EvictJob::Phase), for tests.
  uint64_t cancelled_in_phase[6] = {};

 private:
  struct WriteResult {
    EvictJob* job;
    size_t chunk;
    HostPiece piece;
    absl::Status status;
  };

  void StartJobLocked(Block* block, policy::PlanTier tier, bool stays)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool TakeStarted();
  bool Advance(EvictJob* job);
  bool MayMoveLocked(EvictJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void AfterGatesClosed();
  bool UsesCompleted(EvictJob* job);
  void TakeCopyLocked(EvictJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void BeginCopy(EvictJob* job);
  bool BeginHash(EvictJob* job);
  bool HashEnded(EvictJob* job, ContentHash* result);
  bool Compare(EvictJob* job);
  void ForgetCopy(EvictJob* job);
  bool ReserveHomes(EvictJob* job);
  void TakePieces(size_t count, EvictJob* job);
  absl::Status TakeSlots(size_t count, EvictJob* job);
  bool GiveCopiesToOthers();
  bool Copy(EvictJob* job);
  void EndCopy(EvictJob* job);
  void CopyToHost(EvictJob* job);
  void EndHostCopies(EvictJob* job);
  void CopyToStaging(EvictJob* job);
  void SubmitWrites(EvictJob* job);
  void Commit(EvictJob* job);
  void PublishCopy(EvictJob* job);
  void CountSpilledLocked(const EvictJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void FinishLocked(EvictJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void NoteFailureLocked(Block* block, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void Abandon(EvictJob* job);
  void LetGo(EvictJob* job);
  void ReleaseHomes(std::vector<ChunkHome>* homes);
  bool CollectWrites();

  Core* const core_;
  CopyStreams* const copies_;
  const std::function<void()> wake_;

  std::vector<std::unique_ptr<EvictJob>> started_ ABSL_GUARDED_BY(core_->table.mu);  // since the last Step
  uint64_t chunks_coming_ ABSL_GUARDED_BY(core_->table.mu) = 0;

  std::deque<std::unique_ptr<EvictJob>> jobs_;  // device's thread
  absl::Status first_failure_;                  // device's thread
  uint64_t failures_ = 0;                       // device's thread
  uint64_t copies_asked_ = 0;                   // device's thread: SpillRoom's count when last looked at

  os::Mutex results_mu_{os::LockRank::kTier};
  std::vector<WriteResult> results_ ABSL_GUARDED_BY(results_mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_EVICTOR_H_
