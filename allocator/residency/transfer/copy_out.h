// CopyOut: the copies of an eviction, from the GPU to host memory and to disk. A clean copy is compared with
// the block by hash and used again; else places are reserved off the GPU and the bytes copied there, those
// for the disk through staging buffers. The block's bytes on the GPU stay valid all the time. The Evictor
// calls it and decides when, on the device's thread but for what takes a lock. A copy or write that fails is
// kept in the job, which then ends like one that was taken back.

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

// One eviction or decommit under way. The device's thread alone uses it, but for EvictionState, which the
// lock guards.
struct EvictJob : EvictionState {
  // In this order, but for kCompare, which comes before kCopy, and kVerify, which comes after it.
  enum class Phase { kStarted, kWaitForUses, kCopy, kCommit, kDone, kCompare, kVerify };
  // An extent on its way to disk through staging.
  struct StagedExtent {
    size_t extent = 0;
    PinnedBuffer buffer;
    CUevent copied = nullptr;  // null once the write has been submitted
  };

  Block* block = nullptr;                           // null once a cancelled job has let it go
  uint32_t generation = 0;                          // of the block's life whose bytes these are
  policy::PlanTier tier = policy::PlanTier::kHost;  // where the bytes go if it has capacity; else the other
  Phase phase = Phase::kStarted;
  int64_t began = 0;                // nanoseconds of the steady clock
  std::vector<TimelineValue> uses;  // what must complete before the bytes are final
  bool stays = false;               // copied out only: the block is resident again afterwards
  // Soft evictions are on: kernels that name nothing may write the block. It is hashed before the copy and, in a standstill,
  // after it, and leaves in that.
  bool exact = false;
  bool still = false;  // has joined the standstill
  bool soft = false;   // the address maps what is at `homes`

  // ---- CopyOut's.
  std::vector<ExtentHome> homes;  // reserved for the bytes; empty for a decommit
  CUevent host_copied = nullptr;  // all extents that go to host memory
  bool host_enqueued = false;
  int64_t copy_began = 0;   // nanoseconds of the steady clock
  uint64_t host_bytes = 0;  // of host_copied, until it was seen to have completed
  size_t next_disk_extent = 0;
  std::vector<StagedExtent> staged;
  size_t writes_under_way = 0;
  // The bytes at `homes` are those that `content` is the hash of: good to be kept if the block stays. True
  // from the start for a clean copy that was there. For a copy that this job makes, true once copy and hash
  // have ended and no launch has taken the block (EndCopy).
  bool has_copy = false;
  bool keeps = false;          // the copy that this job makes is to be kept, with the hash of its bytes
  bool verified = false;       // the bytes at `homes` were seen to be the block's, after the copy
  bool clean = false;          // the copy from before is the block's content: nothing to write
  bool content_known = false;  // of the bytes that are, or will be, at `homes`
  ContentHash content;
  DeviceHash::Request hash;  // under way while `hashed` is not null
  CUevent hashed = nullptr;
  absl::Status failure;  // first copy or write that failed: ends like a cancel

  bool AllInHost() const { return std::ranges::all_of(homes, &ExtentHome::in_host); }
  // What changes from one eviction to the next is kept only for a plan, and for a pause: it is long, and what
  // has not changed by the next one is not to be copied again.
  bool KeepsChangedLocked(const TableLock&) const { return stays || block->paused(); }
};

class CopyOut {
 public:
  // `wake` makes the device's thread look again; called from I/O completion threads.
  CopyOut(Core* core, CleanCopies* clean, HashLoader* hash, SharedCapacity* capacity, CopyStreams* copies,
          std::function<void()> wake);

  // Whether copies can be checked, and are therefore worth keeping.
  bool hashes() const { return hash_->Get() != nullptr; }
  // The block's gate has been closed: the job takes over its clean copy, if there is one.
  void TakeCopyLocked(const TableLock& lock, EvictJob* job);
  // The bytes are final, and the block is mapped: goes on to kCompare or kCopy. Nothing happens when no tier
  // has capacity just now.
  void Begin(EvictJob* job);
  // Goes on in kCompare, kCopy and kVerify as far as it can without waiting. True when something was done.
  bool Compare(EvictJob* job);
  bool Copy(EvictJob* job);
  bool Verify(EvictJob* job);
  // For a job that was taken back or has failed: gives back what it can. True when nothing copies from the
  // block or hashes it any more; writes to disk may go on.
  bool Ended(EvictJob* job);
  // Counts the bytes at `homes` as spilled.
  void CountSpilled(const EvictJob& job);
  void ReleaseHomes(EvictJob* job);

  // Takes in the results of writes that have ended. True when there was one.
  bool CollectWrites();
  // Gives this device's clean copies up when another device found no capacity and asked for them. True when
  // it did.
  bool GiveUpAskedCopies();

 private:
  struct WriteResult {
    EvictJob* job;
    size_t extent;
    PinnedBuffer buffer;
    absl::Status status;
  };

  static constexpr uint64_t kMostLines = 8;  // about blocks that were written unseen

  bool BeginHash(EvictJob* job);
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
  uint64_t copies_asked_ = 0;  // device's thread: SharedCapacity's count at the last look

  os::Mutex results_mu_{os::LockRank::kTier};
  std::vector<WriteResult> results_ ABSL_GUARDED_BY(results_mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_OUT_H_
