// Faulter: brings spilled blocks back. Mapping and copies from host memory are done by whoever starts the fetch (a
// launching thread for a fault, the device's thread for a prefetch); chunks on disk go through staging, driven by the
// device's thread (faulter_reads.cc). The spilled copy stays valid until the last byte has arrived.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_FAULTER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_FAULTER_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "allocator/residency/core.h"
#include "allocator/residency/transfer.h"

namespace spillway::allocator {

// One block on its way in. Created under the lock together with the move to kFaulting; touched by its starter until
// it is posted, by the device's thread from then on, but for what is guarded.
struct FetchJob {
  struct StagedChunk {
    size_t chunk = 0;
    HostPiece piece;
    bool read = false;         // arrived from disk
    CUevent copied = nullptr;  // its copy to the GPU; null until enqueued
  };

  Block* block = nullptr;
  std::vector<StagedChunk> staged;
  size_t next_chunk = 0;        // chunks before it have been asked for from disk, or are not there
  size_t disk_chunks_left = 0;  // not yet enqueued to the GPU
  bool from_host = false;       // all of it: measured as one transfer
  absl::Status failure;         // a driver error: the fetch is taken back
  absl::Status lost;            // a read failed for good

  std::vector<size_t> again;  // chunks whose reads were called off before they began
  CUevent drained = nullptr;  // taken back: completes when no copy is under way any more

  // Guarded by the table's lock:
  Stamp waiter;            // up to where the stream of a launch that waits for it had work
  bool demanded = false;   // a launch waits (a prefetch may be promoted)
  bool cancelled = false;  // drain, then back to kSpilled (or kCached when freed)
};

class Faulter {
 public:
  Faulter(Core* core, CopyStreams* copies, std::function<void()> wake);
  ~Faulter();

  // Takes the chunks and moves a kSpilled block to kFaulting.
  void BeginLocked(Block* block, std::vector<ChunkHandle> chunks, bool prefetch);
  // Maps the chunks and enqueues what can be enqueued; posts the rest to the device's thread. Context current, no
  // lock held. On failure the block is kSpilled again, its chunks are free, and the status says why.
  absl::Status Start(Block* block);
  // Maps the chunks of a kEmpty block (handles set, mapping = true) and makes it kResident. As Start otherwise.
  absl::Status MapEmpty(Block* block);

  // A launch wants a block that is being fetched: its reads go first from now on. Takes back a cancel.
  void DemandLocked(Block* block);
  // Takes a fetch back that no launch waits for: its chunks are wanted, or the block was freed.
  static void CancelLocked(Block* block) { block->fetch->cancelled = true; }

  // Moves every fetch on as far as it can go without waiting; completes those whose copies have arrived. True when
  // something changed. Device's thread.
  bool Step();
  // Chunks of prefetches that no launch waits for, which a cancel would free.
  bool CancelPrefetchesLocked();
  bool idle() const { return jobs_.empty(); }
  size_t prefetches_under_way() const;

 private:
  struct ReadResult {
    FetchJob* job;
    size_t chunk;
    absl::Status status;
  };

  absl::Status EnqueueHostChunks(FetchJob* job);
  absl::Status FinishEnqueue(FetchJob* job);
  bool TakeMappingBack(FetchJob* job);
  bool SubmitReads(FetchJob* job, bool demanded, bool others_demand);
  bool EnqueueReadChunks(FetchJob* job);
  bool ReturnStaging(FetchJob* job);
  bool NextDiskChunk(FetchJob* job);
  bool CompleteArrival(FetchJob* job);
  void CountLateness(const FetchJob& job, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool Drain(FetchJob* job);
  void ForgetDrain(FetchJob* job);
  void GiveRetiredLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool Advance(FetchJob* job, bool others_demand);
  bool CollectReads();
  // A fetch that was taken back: spilled as before, or gone if it was freed meanwhile.
  void BackToSpilledLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void ReleaseHomesLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void KeepCopyLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void Lose(FetchJob* job);

  // The arrival event of a block that a launching thread may just be making its stream wait for.
  struct Retired {
    Block* block;
    CUevent event;
  };

  Core* const core_;
  CopyStreams* const copies_;
  const std::function<void()> wake_;

  std::vector<Retired> retired_ ABSL_GUARDED_BY(core_->table.mu);
  std::vector<FetchJob*> posted_ ABSL_GUARDED_BY(core_->table.mu);  // new since the last Step
  std::vector<std::unique_ptr<FetchJob>> jobs_;                     // device's thread

  os::Mutex results_mu_{os::LockRank::kTier};
  std::vector<ReadResult> results_ ABSL_GUARDED_BY(results_mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_FAULTER_H_
