// Residency: the interface of the allocator for one device. It decides which blocks have GPU memory, and
// makes the blocks of a launch resident before the launch. The application's side (hooks, PyTorch's
// allocator) uses this class only. Calls come on any thread; those that may wait say so. A refusal is a
// status or CUDA_ERROR_OUT_OF_MEMORY, with its reason in LastError(). Rules: docs/states.md and
// docs/threading.md.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_H_

#include <array>
#include <cstddef>
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
#include "allocator/residency/state/gpu_share.h"
#include "allocator/residency/state/residency_options.h"

namespace spillway::allocator {

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
  // `region`: what it belongs to when the job is paused.
  virtual absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes, StreamRef stream, BlockRegion region) = 0;
  absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes, StreamRef stream) {
    return Allocate(bytes, stream, {});
  }
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
  // Appends where the blocks of the set lie, but for those that have been freed.
  virtual void FindRanges(const AccessSet& set, std::vector<Range>* ranges) const = 0;

  // ---- Streams, capture, external memory. Called from the hooks, before the real call unless a
  // comment names another time.

  virtual void OnStreamDestroy(CUstream stream) = 0;
  virtual void OnCaptureBegin(CUstream stream) = 0;
  // After the real call, and after that of a beginning that failed.
  virtual void OnCaptureEnd(CUstream stream) = 0;
  // External memory that was allocated (positive) or freed (negative), in bytes, after the real call; of
  // cuMemFree before it.
  virtual void OnExternalBytes(int64_t delta) = 0;
  // An external allocation of that size is about to be made: gives up chunks until it fits the budget beside
  // ours, for up to a second. To be followed by EndExternalAllocation, with whether the real call failed.
  virtual void BeginExternalAllocation(uint64_t bytes) = 0;
  virtual void EndExternalAllocation(uint64_t bytes, bool failed) = 0;
  // A driver call that is not ours ran out of memory: gives chunks back, more with each `attempt` from 0 on,
  // and from the second on also those of idle blocks. `bytes_wanted`: 0 when not known. True when the call
  // may be worth a repeat; a later attempt may help where an earlier one did not. May wait for the GPU and
  // the disk.
  static constexpr int kMaxGiveBacks = 4;
  virtual bool GiveBack(int attempt, uint64_t bytes_wanted) = 0;
  // Repeats `call`, which ran out of memory, each time that one of `attempts` has given chunks back, until it
  // does not any more. Its last result.
  CUresult RepeatWhenFull(int attempts, uint64_t bytes_wanted, absl::FunctionRef<CUresult()> call) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; result == CUDA_ERROR_OUT_OF_MEMORY && i < attempts; ++i) {
      if (GiveBack(i, bytes_wanted)) result = call();
    }
    return result;
  }

  // For a process with calls that cannot be followed. Every live block's bytes are on the GPU, for any
  // stream, when this returns; blocks that come later have memory from their allocation on; nothing leaves
  // any more. kResourceExhausted when the live blocks do not fit together: then what is out comes back only
  // for launches that name it, and for RunReachingAll. May wait for the GPU and the disk. Called again, it
  // tries again.
  virtual absl::Status StopEvicting() = 0;

  // ---- Pause.

  // The blocks of the scope leave the GPU, and what they had goes back to the driver, with all that is free;
  // of everything, also what freed blocks have. They keep their addresses. From its start on launches that
  // name them are refused with CUDA_ERROR_ILLEGAL_STATE, or wait for the resume from outside. Blocks that are
  // allocated later are paused only where everything is paused from outside. Waits until all have left that
  // can; adds to `stats` what came of it: blocks may stay (pinned, or not to be copied), and are paused all
  // the same. kUnavailable, and nothing is paused, while a stream is captured; kFailedPrecondition in audit
  // mode or where nothing may leave; kResourceExhausted when host memory and disk have no place for the
  // bytes. Again: pauses what was not.
  virtual absl::Status Pause(const PauseScope& scope, PauseStats* stats) = 0;
  // Launches may name the blocks again, and they come back in the order of need while the GPU has space; with
  // `wait` not before they are back. What was not paused stays as it is. Fails only while it waits.
  virtual absl::Status Resume(const PauseScope& scope, bool wait) = 0;

  // Copies the first `bytes` of a paused block from host memory to `to`. `address` as returned by Allocate.
  // kNotFound when it is not paused, or not all of it lies in host memory; what `to` then has is undefined.
  virtual absl::Status ReadPaused(CUdeviceptr address, std::byte* to, uint64_t bytes) const = 0;

  // ---- Prediction: called by integration/prediction (policy/planner/plan.h, plan_runner.h).

  // Replaces the plan in force from the next iteration on; null drops it: least recently used from now on, as
  // with hints (MigrationPlan::hints). Neither of these two allocates.
  virtual void SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) = 0;

  // Which accesses write, as far as sampled launches have shown by now, and guesses where they have not; null
  // before there is any. A snapshot: the same one until something new is known. Any thread.
  virtual std::shared_ptr<const policy::WriteFacts> LearntWrites() const { return nullptr; }
  // What other runs have learnt of writes (WriteFacts::Guess). Plans use it, and what is dropped by it is checked as
  // ever. Any thread.
  virtual void GuessWrites(const std::vector<policy::FormFacts>& guesses) {}

  // ---- Reports.

  // Walks all blocks.
  virtual ResidencyStats Stats() const = 0;
  // The part of it that plans are made for, in constant time.
  virtual MachineFigures Machine() const = 0;
  // What the job sees as reserved for its blocks: our chunks, and the bytes of live blocks that have none,
  // since they are away or were not used yet. Never less than what is live. In constant time: for each
  // allocation.
  struct ReservedBytes {
    uint64_t now = 0;
    uint64_t peak = 0;
  };
  virtual ReservedBytes Reserved() const = 0;
  // Memory as the job should see it: total = budget and reserve, whatever SetCap says; free = budget - live
  // resident blocks - external memory; once blocks had to leave the GPU, and while none is paused, also what
  // others can make free by leaving, as far as the tiers have a place for them.
  virtual void MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const = 0;
  // The application's own limit on the device's budget, in bytes; UINT64_MAX: none. Blocks leave until it is
  // kept to; what must stay, and a launch that names more, stay above it or are refused. Returns the limit in
  // force: more than was asked for where blocks have no place elsewhere.
  virtual uint64_t SetCap(uint64_t bytes) = 0;
  // The same of jobs that share the device (GpuShare), which alone calls it.
  virtual uint64_t SetShare(uint64_t bytes) = 0;
  // Before a share is lowered to `bytes`: has the tiers grow for it. May wait for them.
  virtual void PrepareShare(uint64_t bytes) = 0;
  // Walks all blocks.
  virtual ShareNeed GetShareNeed() const = 0;
  // Whether the GPU has done all launches so far, on whatever stream.
  virtual bool Quiet() = 0;
  // The largest live blocks, at most `most`, the largest first: for the words of a refusal. Walks all blocks.
  virtual std::vector<LargeBlock> LargestBlocks(size_t most) const = 0;
  // The live blocks that are pinned for long. Walks all blocks.
  virtual std::vector<BlockBytes> PinnedBlocks() const = 0;
  // Why the last call of this thread was refused; empty when none was.
  virtual std::string LastError() const = 0;

  // Stops the thread within 2 s; from then on launches pass through and frees do nothing.
  virtual void Shutdown() = 0;
  // In a forked child: everything passes through, nothing is released.
  virtual void AbandonAfterFork() = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_H_
