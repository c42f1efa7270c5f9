// Residency: the interface of the allocator for one device. It decides which blocks have GPU memory, and
// makes the blocks of a launch resident before the launch. The application's side (hooks, PyTorch's
// allocator) uses this class only. Calls come on any thread; those that may wait say so. A refusal is a
// status or CUDA_ERROR_OUT_OF_MEMORY, with its reason in LastError(). Rules: docs/states.md and
// docs/threading.md.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/stream_ref.h"
#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/pin.h"
#include "allocator/residency/state/link_meter.h"
#include "allocator/residency/state/residency_options.h"

namespace spillway::allocator {

// Counters of one device, with units in the names. A snapshot: fields may be a few operations apart.
struct ResidencyStats {
  uint64_t budget_bytes = 0;        // now; falls when the driver refuses chunks
  uint64_t chunk_target_bytes = 0;  // of the budget, what our chunks may hold now
  uint64_t live_bytes = 0;          // blocks handed out and not freed, in whole chunks
  uint64_t requested_bytes = 0;     // the same as asked for
  uint64_t resident_bytes = 0;      // live blocks with chunks
  uint64_t cached_bytes = 0;        // chunks of freed blocks kept for the next
  uint64_t chunk_bytes = 0;         // all chunks that we have
  uint64_t peak_chunk_bytes = 0;
  uint64_t peak_live_bytes = 0;       // most of live_bytes, and
  uint64_t peak_requested_bytes = 0;  // requested_bytes when it was reached: the rest is rounding
  uint64_t peak_device_bytes = 0;     // most of (our chunks + external memory)
  uint64_t external_bytes = 0;        // external memory now
  uint64_t host_tier_bytes = 0;       // spilled bytes in host memory now
  uint64_t disk_tier_bytes = 0;       // spilled bytes in spill files now
  uint64_t clean_copy_bytes = 0;      // in both, clean copies: given up when the capacity is needed

  uint64_t spilled_bytes = 0;  // moved out, all tiers, since start
  uint64_t host_spilled_bytes = 0;
  uint64_t disk_spilled_bytes = 0;
  uint64_t fetched_bytes = 0;  // moved in, all tiers
  uint64_t host_fetched_bytes = 0;
  uint64_t disk_fetched_bytes = 0;
  uint64_t prefetched_bytes = 0;        // of fetched: on the plan's account
  uint64_t prefetch_in_time_bytes = 0;  // of fetched: arrived before their launch reached the gate

  uint64_t launches = 0;       // through the gate, with at least one block of ours
  uint64_t slow_launches = 0;  // of those, not everything was resident
  uint64_t evictions = 0;
  uint64_t evictions_cancelled = 0;
  uint64_t faults = 0;  // blocks brought in on demand
  uint64_t prefetches = 0;
  uint64_t prefetches_cancelled = 0;
  uint64_t clean_drops = 0;  // of evictions: the copy from before was the content still, nothing was moved
  uint64_t clean_drop_bytes = 0;   // what those would have moved
  uint64_t hash_mismatches = 0;    // a copy was kept, and the block had changed: written again
  uint64_t handles_remade = 0;     // of GPU memory, released to be created in other sizes
  uint64_t early_copies = 0;       // blocks copied out while they stayed on the GPU
  uint64_t stall_chunk_nanos = 0;  // launching threads waited for chunks
  uint64_t stall_disk_nanos = 0;   // for reads and their staging
  uint64_t throttled_nanos = 0;    // by the bound on uncompleted launches, mostly behind a GPU that had work
  // Of the time of the job, the part in which the GPU had nothing to do: a launch waited for chunks; for
  // bytes to come back (the launching thread for the disk, or the GPU for their arrival); for the bound on
  // uncompleted launches.
  uint64_t lost_chunk_nanos = 0;
  uint64_t lost_read_nanos = 0;
  uint64_t lost_run_ahead_nanos = 0;
  uint64_t in_time_bytes = 0;  // of fetched: nothing on the GPU had to wait for them
  // Bytes a second of each copy queue while it had anything to do: moving means. 0: not known yet.
  double host_out_rate = 0;
  double disk_out_rate = 0;
  double host_in_rate = 0;
  double disk_in_rate = 0;
  // Of these, those of host memory while both directions of the link run; 0: the link was not measured.
  double host_out_both_rate = 0;
  double host_in_both_rate = 0;
  // What plain copies over the link were measured to reach last; measurements that ended, and those that were
  // given up; time during which one was under way.
  std::optional<LinkMeter::Measured> link;
  uint64_t link_measurements = 0;
  uint64_t link_measurements_dropped = 0;
  uint64_t link_measuring_nanos = 0;
  uint64_t pinned_bytes = 0;
  std::array<uint64_t, 8> pinned_bytes_by_reason{};  // index: PinReason
  uint64_t largest_set_bytes = 0;
  uint64_t run_ahead_bytes =
      0;  // bound on the bytes that uncompleted launches touch, once spilling has begun
};

class Residency {
 public:
  // Starts the device's thread and copy streams. `context` is the device's primary context, retained by the
  // caller. `host` and `disk` may be null: that tier is then absent. All pointers must outlive this object.
  static absl::StatusOr<std::unique_ptr<Residency>> Create(const ResidencyOptions& options,
                                                           const ResidencyParts& parts);
  virtual ~Residency() = default;

  // ---- Allocation. Any thread; may wait for the GPU, never for a disk with a lock.

  // A block of at least `bytes`, owned by `stream` as in PyTorch: reusable by that stream as soon as it is
  // freed. kResourceExhausted when GPU, host and disk together could not hold it (docs/design.md,
  // Accounting).
  virtual absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes, StreamRef stream) = 0;
  // `address` as returned by Allocate; kInvalidArgument otherwise. Moves no bytes.
  virtual absl::Status Free(CUdeviceptr address) = 0;
  // PyTorch's recordStream: the block stays in use after Free until `stream` has done what is queued on it
  // when it is freed. The stream may be another device's; a default stream is that of the current context.
  virtual absl::Status RecordStream(CUdeviceptr address, CUstream stream) = 0;
  // Gives the chunks of cached blocks and free chunks back to the driver.
  virtual absl::Status EmptyCache() = 0;
  // Start and size, as asked for, of the block at `address`; kNotFound when none is there.
  using Range = BlockRange;
  virtual absl::StatusOr<Range> FindRange(CUdeviceptr address) const = 0;

  // ---- Launches.

  // Makes every block of `set` resident, calls `launch`, and records the use of the blocks. `launch` must
  // enqueue work on `stream` and nothing that could block for long. All blocks of the set must be of this
  // device. Returns what `launch` returned, or CUDA_ERROR_OUT_OF_MEMORY without calling it when the set
  // cannot be made to fit. A `launch` that returns out-of-memory is repeated once, after chunks were given
  // back to the driver. No lock and no allocation when everything is resident. `tag` names what is launched
  // for prediction, equal for equal functions or kinds of copy. Any thread. `stream` may be another device's
  // (peer copies): its work is waited for like any other before a block leaves.
  virtual CUresult Run(const AccessSet& set, StreamRef stream, uint64_t tag,
                       absl::FunctionRef<CUresult()> launch) = 0;
  // The same for calls that may block (synchronous copies) and for sets that lie on several devices (nested,
  // devices in ascending order). The set is pinned under the lock instead of guarded by a read-side section,
  // so `launch` may take as long as it likes.
  virtual CUresult RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                             absl::FunctionRef<CUresult()> launch) = 0;

  // The same for a launch that may reach any live block of the device through pointers that its set does not
  // name: all of them are resident for it, and recorded as used. Refused as above when they do not fit
  // together. `set` may be empty.
  virtual CUresult RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                                  absl::FunctionRef<CUresult()> launch) = 0;

  // Long-term pins. Makes the set resident and keeps each of its blocks so until it is freed, or until Unpin.
  // Pins are counted by reason. Each Pin that is given `pinned` appends what one Unpin must be given later.
  // kResourceExhausted when the pinned blocks and the largest set would no longer fit the budget.
  virtual absl::Status Pin(const AccessSet& set, PinReason reason, std::vector<PinnedBlock>* pinned) = 0;
  absl::Status Pin(const AccessSet& set, PinReason reason) { return Pin(set, reason, nullptr); }
  // Ends one pin of each block. A block without another may leave once `users` are done. A block that was
  // freed meanwhile is left alone.
  virtual void Unpin(const std::vector<PinnedBlock>& pinned, PinReason reason, const EscapedUsers& users) = 0;
  // The pinned blocks may be in use by `users`, whom nothing can ask later: records that use now.
  virtual void NoteEscapedUse(const std::vector<PinnedBlock>& pinned, const EscapedUsers& users) = 0;

  // ---- Streams, capture, external memory. Called from the hooks, before the real call unless said
  // otherwise.

  virtual void OnStreamDestroy(CUstream stream) = 0;
  virtual void OnCaptureBegin(CUstream stream) = 0;
  virtual void OnCaptureEnd(CUstream stream) = 0;
  // External memory that was allocated (positive) or freed (negative), in bytes, after the real call.
  virtual void OnExternalBytes(int64_t delta) = 0;
  // An external allocation of that size is about to be made: gives up chunks until it fits the budget beside
  // ours, for up to a second. To be followed by EndExternalAllocation, with whether the real call failed.
  virtual void BeginExternalAllocation(uint64_t bytes) = 0;
  virtual void EndExternalAllocation(uint64_t bytes, bool failed) = 0;
  // An external driver call ran out of memory: gives chunks back. True when the call may be worth a repeat.
  virtual bool ReleaseForExternal(uint64_t bytes_wanted) = 0;

  // For a process with calls that cannot be followed. Brings every live block to the GPU; blocks that come
  // later have memory from their allocation on; nothing leaves any more. kResourceExhausted when the live
  // blocks do not fit together: then what is out comes back only for launches that name it, and for
  // RunReachingAll. May wait for the GPU and the disk. Called again, it tries again.
  virtual absl::Status StopEvicting() = 0;

  // ---- Prediction: called by integration/prediction (policy/planner/plan.h, plan_runner.h).

  // Replaces the plan in force from the next iteration on; null drops it: least recently used from now on.
  virtual void SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) = 0;

  // Which touches write, as far as sampled launches have shown by now; null before anything is known. A
  // snapshot: the same one until something new is known. Any thread.
  virtual std::shared_ptr<const policy::WriteFacts> LearntWrites() const { return nullptr; }

  // ---- Reports.

  // Walks all blocks.
  virtual ResidencyStats Stats() const = 0;
  // chunk_bytes and peak_chunk_bytes of Stats alone: for each allocation.
  struct OwnedChunks {
    uint64_t bytes = 0;
    uint64_t peak_bytes = 0;
  };
  virtual OwnedChunks ChunksOwned() const = 0;
  // Memory as the job should see it: total = budget, free = budget - live resident blocks - external memory.
  virtual void MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const = 0;
  // The largest live blocks, at most `most`, the largest first: for the words of a refusal. Walks all blocks.
  virtual std::vector<LargeBlock> LargestBlocks(size_t most) const = 0;
  // Why the last call of this thread was refused; empty when none was.
  virtual std::string LastError() const = 0;

  // Stops the thread within 2 s; from then on launches pass through and frees do nothing.
  virtual void Shutdown() = 0;
  // In a forked child: everything passes through, nothing is released.
  virtual void AbandonAfterFork() = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_H_
