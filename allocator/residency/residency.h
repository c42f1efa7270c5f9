// Residency: the allocator's interface for one device. It decides which blocks have GPU memory, and makes the
// blocks of a launch resident before the launch. The application's side (hooks, PyTorch's allocator) uses
// this class only. Any thread may call; calls that may wait document it. A refusal is a status or
// CUDA_ERROR_OUT_OF_MEMORY, with its reason in LastError(). The rules are in docs/states.md and
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

  // ---- Allocation. Any thread; may wait for the GPU, but never for a disk with a lock.

  // Allocates a block of at least `bytes`, owned by `stream` as in PyTorch: that stream may reuse it as soon
  // as it is freed. `region` is the part of the job with which the block is paused. kResourceExhausted when
  // GPU, host and disk together could not hold the block (docs/design.md, Accounting).
  virtual absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes, StreamRef stream, BlockRegion region) = 0;
  absl::StatusOr<CUdeviceptr> Allocate(uint64_t bytes, StreamRef stream) {
    return Allocate(bytes, stream, {});
  }
  // Frees the block at `address`, as returned by Allocate; kInvalidArgument for any other address. Moves no
  // bytes.
  virtual absl::Status Free(CUdeviceptr address) = 0;
  // PyTorch's recordStream: after Free the block stays in use until `stream` has done the work that is queued
  // on it at the free. The stream may be another device's; a default stream is that of the current context.
  virtual absl::Status RecordStream(CUdeviceptr address, CUstream stream) = 0;
  // Gives the chunks of cached blocks and free chunks back to the driver.
  virtual absl::Status EmptyCache() = 0;
  // Start and requested size of the block at `address`; kNotFound when none is there.
  using Range = BlockRange;
  virtual absl::StatusOr<Range> FindRange(CUdeviceptr address) const = 0;

  // ---- Launches.

  // Makes every block of `set` resident, calls `launch`, and records the use of the blocks. `launch` must
  // enqueue work on `stream` and do nothing that could block for long. All blocks of the set must be of this
  // device. `stream` may be another device's (peer copies); its work is waited for like any other before a
  // block leaves. `tag` identifies the launch for prediction, equal for equal functions or kinds of copy.
  //
  // Returns the result of `launch`, or CUDA_ERROR_OUT_OF_MEMORY without calling it when the set cannot be
  // made to fit. A `launch` that returns out-of-memory is repeated after chunks were given back to the
  // driver. Takes no lock and allocates nothing when everything is resident. Any thread.
  virtual CUresult Run(const AccessSet& set, StreamRef stream, uint64_t tag,
                       absl::FunctionRef<CUresult()> launch) = 0;
  // The same for calls that may block (synchronous copies) and for sets that lie on several devices (nested,
  // devices in ascending order). The set is pinned under the lock instead of being guarded by a read-side
  // section, so `launch` may take as long as it likes.
  virtual CUresult RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                             absl::FunctionRef<CUresult()> launch) = 0;

  // The same for a launch that may reach any live block of the device through pointers that its set does not
  // name. All live blocks are resident for it, and recorded as used. It is refused as above when they do not
  // fit together. `set` may be empty.
  virtual CUresult RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                                  absl::FunctionRef<CUresult()> launch) = 0;

  // Records that the launch that comes next on `stream` may begin before the one ahead of it has ended
  // (programmatic dependent launch). From then on fewer events are recorded on the stream, since one between
  // two such launches keeps them apart. Does nothing while the stream is captured: a graph has no
  // events of ours. The context must be current. Lock-free, except for a stream that was never named before.
  // Any thread.
  virtual void RecordOverlap(StreamRef stream) = 0;

  // Adds long-term pins: makes the set resident and keeps each of its blocks resident until it is freed, or
  // until Unpin. Pins are counted by reason. Each Pin that is given `pinned` appends the entries that one
  // Unpin must be given later. kResourceExhausted when the pinned blocks and the largest set would no longer
  // fit the budget.
  virtual absl::Status Pin(const AccessSet& set, PinReason reason, std::vector<PinnedBlock>* pinned) = 0;
  absl::Status Pin(const AccessSet& set, PinReason reason) { return Pin(set, reason, nullptr); }
  // Ends one pin of each block. A block without another pin may leave once `users` are done. A block that was
  // freed meanwhile is left alone.
  virtual void Unpin(const std::vector<PinnedBlock>& pinned, PinReason reason, const EscapedUsers& users) = 0;
  // Appends the ranges of the set's blocks, except those that have been freed.
  virtual void FindRanges(const AccessSet& set, std::vector<Range>* ranges) const = 0;

  // ---- Streams, capture, external memory. The hooks call these before the real call unless a comment names
  // another time.

  virtual void OnStreamDestroy(CUstream stream) = 0;
  virtual void OnCaptureBegin(CUstream stream) = 0;
  // Called after the real call, also after that of a begin that failed.
  virtual void OnCaptureEnd(CUstream stream) = 0;
  // Counts external memory that was allocated (positive) or freed (negative), in bytes. Called after the real
  // call; for cuMemFree before it.
  virtual void OnExternalBytes(int64_t delta) = 0;
  // Counts an external allocation of `bytes` that is about to be made, and gives up chunks until it fits the
  // budget beside ours, for up to a second. EndExternalAllocation must follow, with whether the real call
  // failed.
  virtual void BeginExternalAllocation(uint64_t bytes) = 0;
  virtual void EndExternalAllocation(uint64_t bytes, bool failed) = 0;
  // Gives chunks back after a driver call that is not ours ran out of memory: more with each `attempt` from 0
  // on, and from the second on also those of idle blocks. `bytes_wanted` is 0 when not known. Returns true
  // when the call may be worth a repeat; a later attempt may help where an earlier one did not. May wait for
  // the GPU and the disk.
  static constexpr int kMaxGiveBacks = 4;
  virtual bool GiveBack(int attempt, uint64_t bytes_wanted) = 0;
  // Repeats `call`, which ran out of memory, after each of `attempts` that has given chunks back, until it no
  // longer runs out of memory. Returns its last result.
  CUresult RepeatWhenFull(int attempts, uint64_t bytes_wanted, absl::FunctionRef<CUresult()> call) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; result == CUDA_ERROR_OUT_OF_MEMORY && i < attempts; ++i) {
      if (GiveBack(i, bytes_wanted)) result = call();
    }
    return result;
  }

  // Stops evictions, for a process with calls that cannot be followed. When this returns, every live block's
  // bytes are on the GPU, for any stream; later blocks have memory from their allocation on, and nothing
  // leaves any more. kResourceExhausted when the live blocks do not fit together: blocks that are out then
  // come back only for launches that name them, and for RunReachingAll. May wait for the GPU and the disk.
  // Another call tries again.
  virtual absl::Status StopEvicting() = 0;

  // ---- Pause.

  // Pauses the blocks of the scope. They leave the GPU and keep their addresses. Their memory goes back to
  // the driver, with all chunks that are free; a pause of everything also gives back the memory of freed
  // blocks. Launches that name the blocks are refused from the start of the pause on, with
  // CUDA_ERROR_ILLEGAL_STATE, or wait for the resume if the pause came from outside. Blocks that are
  // allocated later are paused only where everything is paused from outside.
  //
  // Waits until all blocks have left that can, and adds the outcome to `stats`. Blocks may stay (pinned, or
  // impossible to copy), and are paused all the same. kUnavailable, and nothing is paused, while a stream is
  // captured; kFailedPrecondition in audit mode or where nothing may leave; kResourceExhausted when host
  // memory and disk have no place for the bytes. Another call pauses the blocks that were not paused.
  virtual absl::Status Pause(const PauseScope& scope, PauseStats* stats) = 0;
  // Lets launches name the blocks again. They come back in the order of need while the GPU has space; with
  // `wait`, the call returns only after that. Blocks that were not paused stay as they are. Fails only while
  // it waits.
  virtual absl::Status Resume(const PauseScope& scope, bool wait) = 0;

  // Copies the first `bytes` of a paused block from host memory to `to`. `address` is as returned by
  // Allocate. kNotFound when the block is not paused, or when it does not lie in host memory as a whole; the
  // content of `to` is undefined then.
  virtual absl::Status ReadPaused(CUdeviceptr address, std::byte* to, uint64_t bytes) const = 0;

  // ---- Prediction, called by integration/prediction (policy/model/plan.h, plan_runner.h).

  // Replaces the plan in force from the next iteration on. Null drops it: blocks then leave by recency, as
  // with hints (MigrationPlan::hints). It allocates neither for null nor for hints.
  virtual void SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) = 0;

  // The accesses that write, as far as sampled launches have shown by now, and guesses about the others; null
  // before there is any. The result is a snapshot, and the same one until something new is known. Any thread.
  virtual std::shared_ptr<const policy::WriteFacts> LearntWrites() const { return nullptr; }
  // What other runs have learned of writes (WriteFacts::Guess). Plans use it, and what is dropped by it is
  // checked as ever. Any thread.
  virtual void GuessWrites(const std::vector<policy::FormFacts>& guesses) {}

  // ---- Reports.

  // Visits all blocks.
  virtual ResidencyStats Stats() const = 0;
  // The part of Stats that plans need, in constant time.
  virtual MachineStats Machine() const = 0;
  // Memory that the job sees as reserved for its blocks: our chunks, and the bytes of live blocks that have
  // no chunks, because they are away or were not used yet. It is never less than the live bytes. Runs in
  // constant time, since it is called for each allocation.
  struct ReservedBytes {
    uint64_t now = 0;
    uint64_t peak = 0;
  };
  virtual ReservedBytes Reserved() const = 0;
  // Memory as the job should see it. The total is budget and reserve, whatever SetCap set. The free memory is
  // the budget less live resident blocks and external memory. Once blocks had to leave the GPU, and while
  // none is paused, it also includes the memory that other blocks can make free by leaving, as far as the
  // tiers have a place for them.
  virtual void MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const = 0;
  // Sets the application's own limit on the device's budget, in bytes; UINT64_MAX removes it. Blocks leave
  // until the limit is kept. Blocks that must stay exceed it; a launch that names more exceeds it or is
  // refused. Returns the limit in force, which is more than was asked for when blocks have no place
  // elsewhere.
  virtual uint64_t SetCap(uint64_t bytes) = 0;
  // The same limit for jobs that share the device; only GpuShare calls it.
  virtual uint64_t SetShare(uint64_t bytes) = 0;
  // Lets the tiers grow for a share that will be lowered to `bytes`. May wait for them.
  virtual void PrepareShare(uint64_t bytes) = 0;
  // Visits all blocks.
  virtual ShareNeed GetShareNeed() const = 0;
  // Whether the GPU has completed all launches so far, on whatever stream.
  virtual bool Quiet() = 0;
  // The largest live blocks, at most `most`, the largest first. For the message of a refusal. Visits all
  // blocks.
  virtual std::vector<LargeBlock> LargestBlocks(size_t most) const = 0;
  // The live blocks with a long-term pin. Visits all blocks.
  virtual std::vector<BlockBytes> PinnedBlocks() const = 0;
  // The reason why the last call of this thread was refused; empty when none was.
  virtual std::string LastError() const = 0;

  // Stops the thread within 2 s. Launches pass through and frees do nothing from then on.
  virtual void Shutdown() = 0;
  // For a forked child: everything passes through, and nothing is released.
  virtual void AbandonAfterFork() = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_H_
