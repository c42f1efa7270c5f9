// CopyOut: the copies of an eviction, from the GPU to host memory and to disk. It compares a clean copy with
// the block by hash, and uses it again if they are equal. Otherwise it reserves places off the GPU and copies
// the bytes there, those for the disk through staging buffers. The block's bytes on the GPU stay valid all
// the time. The Evictor calls it and decides when, on the device's thread except for the methods that take a
// lock. The job keeps the error of a copy or write that fails, and then ends like one that was taken back.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_OUT_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_OUT_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/device_hash.h"
#include "allocator/residency/state/clean_copies.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/copy_streams.h"
#include "allocator/tier/shared_capacity.h"
#include "policy/model/plan.h"

namespace spillway::allocator {

// One eviction or decommit under way. Only the device's thread uses it, except for EvictionState, which the
// lock guards.
struct EvictJob : EvictionState {
  // The phases follow in this order, except that kCompare comes before kCopy, and kVerify after it.
  enum class Phase { kStarted, kWaitForUses, kCopy, kCommit, kDone, kCompare, kVerify };
  // An extent on its way to disk through staging.
  struct StagedExtent {
    size_t extent = 0;
    PinnedBuffer buffer;
    CUevent copied = nullptr;  // null once the write has been submitted
  };

  Block* block = nullptr;                           // null once a canceled job has let it go
  uint32_t generation = 0;                          // the block's life to which these bytes belong
  policy::PlanTier tier = policy::PlanTier::kHost;  // preferred for the bytes; the other if it is full
  Phase phase = Phase::kStarted;
  int64_t began = 0;                // nanoseconds of the steady clock
  std::vector<TimelineValue> uses;  // uses that must complete before the bytes are final
  bool stays = false;               // copied out only: the block becomes resident again
  // Soft evictions are on, so kernels that name nothing may write the block. It is hashed before the copy
  // and, in a standstill, after it; it leaves in the same standstill.
  bool exact = false;
  bool still = false;  // has joined the standstill
  bool soft = false;   // the address maps the buffers at `homes`

  // ---- Used by CopyOut.
  std::vector<ExtentHome> homes;  // reserved for the bytes; empty for a decommit
  CUevent host_copied = nullptr;  // completes with all copies to host memory
  bool host_enqueued = false;
  int64_t copy_began = 0;   // nanoseconds of the steady clock
  uint64_t host_bytes = 0;  // bytes of host_copied, until it was seen to have completed
  size_t next_disk_extent = 0;
  std::vector<StagedExtent> staged;
  size_t writes_under_way = 0;
  // Whether the bytes at `homes` are those that `content` is the hash of, so that they may be kept if the
  // block stays. It is true from the start for an earlier clean copy. For a copy that this job makes, it
  // becomes true when copy and hash have ended and no launch has taken the block (EndCopy).
  bool has_copy = false;
  bool keeps = false;          // the copy is worth keeping when the block is back, or stays
  bool verified = false;       // the bytes at `homes` were seen to be the block's, after the copy
  bool clean = false;          // the earlier copy is the block's content: nothing to write
  bool content_known = false;  // whether `content` is the hash of the bytes that are, or will be, at `homes`
  ContentHash content;
  DeviceHash::Request hash;  // under way while `hashed` is not null
  CUevent hashed = nullptr;
  absl::Status failure;  // first copy or write that failed: the job ends like a canceled one

  bool AllInHost() const { return std::ranges::all_of(homes, &ExtentHome::in_host); }
  // Whether to keep a copy of a block that changes from one eviction to the next. It is kept only for a plan
  // and for a pause. A pause is long, and bytes that have not changed by the next one should not be copied
  // again.
  bool KeepsChangedLocked(const TableLock&) const { return stays || block->paused(); }
};

class CopyOut {
 public:
  // `wake` makes the device's thread poll again; it is called from I/O completion threads.
  CopyOut(Core* core, CleanCopies* clean, HashLoader* hash, SharedCapacity* capacity, CopyStreams* copies,
          std::function<void()> wake);

  // Whether copies can be checked, and are therefore worth keeping.
  bool hashes() const { return hash_->Get() != nullptr; }
  // Called when the block's gate has been closed: the job takes over its clean copy, if there is one.
  void TakeCopyLocked(const TableLock& lock, EvictJob* job);
  // Called when the bytes are final and the block is mapped: goes on to kCompare or kCopy. Does nothing when
  // no tier has capacity just now.
  void Begin(EvictJob* job);
  // Each goes on in its phase as far as it can without waiting. Returns true when something was done.
  bool Compare(EvictJob* job);
  bool Copy(EvictJob* job);
  bool Verify(EvictJob* job);
  // For a job that was taken back or has failed: gives back what it can. Returns true when nothing copies
  // from the block or hashes it any more; writes to disk may go on.
  bool Ended(EvictJob* job);
  // Counts the bytes at `homes` as spilled.
  void CountSpilled(const EvictJob& job);
  void ReleaseHomes(EvictJob* job);

  // Takes in the results of writes that have ended. Returns true when there was one.
  bool CollectWrites();
  // Gives up this device's clean copies when another device found no capacity and asked for them. Returns
  // true when it did.
  bool GiveUpAskedCopies();

 private:
  struct WriteResult {
    EvictJob* job;
    size_t extent;
    PinnedBuffer buffer;
    absl::Status status;
  };

  static constexpr uint64_t kMaxLines = 8;  // about blocks that were written unseen

  // Fails with kUnavailable while all places for hashes are taken.
  absl::Status BeginHash(EvictJob* job);
  // Whether the job tries again at the next poll, since `begun` says that it got no place and it must have one.
  bool WaitsForPlace(const absl::Status& begun, EvictJob* job);
  bool HashEnded(EvictJob* job, ContentHash* result);
  void ForgetCopy(EvictJob* job);
  void KeepOnGpu(EvictJob* job);
  bool ReserveHomes(EvictJob* job);
  void TakeHostBuffers(size_t count, EvictJob* job);
  absl::Status TakeSlots(size_t count, EvictJob* job);
  void EndCopy(EvictJob* job);
  void CopyToHost(EvictJob* job);
  void EndHostCopies(EvictJob* job);
  void CopyToStaging(EvictJob* job);
  void SubmitWrites(EvictJob* job);

  Core* const core_;
  CleanCopies* const clean_;
  HashLoader* const hash_;
  SharedCapacity* const capacity_;
  CopyStreams* const copies_;
  const std::function<void()> wake_;
  uint64_t copies_asked_ = 0;  // device's thread: SharedCapacity's count at the last check

  os::Mutex results_mu_{os::LockRank::kTier};
  std::vector<WriteResult> results_ ABSL_GUARDED_BY(results_mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_OUT_H_
