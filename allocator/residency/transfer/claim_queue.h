// ClaimQueue: the slow path through the gate. A launch whose blocks are not all resident claims chunks for
// the missing ones: all of them or none, first come first served. Only the first in the queue may have pins
// while it waits, so that two waiting claims never keep each other's victims on the GPU. Once granted, chunks
// and pins are the claim's until Release.
//
// Launches calls it on launching threads. Reclaimer asks on the device's thread what the first in the queue
// lacks, and may refuse it. If kernels can reach the host tier, a set that does not fit the GPU stays there
// in part (Reach). A claim fails when its blocks cannot fit, when the device stops, and at the user's limit
// of a wait.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_CLAIM_QUEUE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_CLAIM_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/reach.h"
#include "allocator/residency/transfer/faulter.h"

namespace spillway::allocator {

// A granted claim: the live blocks of the set, all pinned, and the blocks whose chunks this thread must map
// and fill.
struct Grant {
  uint64_t tag = 0;                          // tag of the launch that claims, for reports; 0: none
  KernelPasses passes = KernelPasses::kOne;  // of the launch, where it may not fit the GPU
  std::vector<Block*> pinned;
  std::vector<Block*> to_map;    // were kEmpty
  std::vector<Block*> to_fetch;  // were kSpilled
};

class ClaimQueue {
 public:
  // The name of the waiting launch, for people. Called without a lock, and only when a wait gets long.
  using Name = absl::FunctionRef<std::string()>;

  // Evicts these blocks, which may leave the GPU.
  using Leave = std::function<void(const TableLock& lock, const std::vector<Block*>& blocks)>;

  // `wake` makes the device's thread choose victims.
  ClaimQueue(Core* core, Charges* charges, Faulter* faulter, Reach* reach, Leave leave,
             std::function<void()> wake);

  // Pins every live block of the set and gives chunks to those without. Waits for its turn and for chunks;
  // while it waits it has no chunk, section or staging buffer. Fails with kResourceExhausted and a message
  // when the set can never fit; kFailedPrecondition when the job has paused a block of it; the device's
  // error; kCancelled at the end of the process; kDeadlineExceeded at the user's limit. `name` names the
  // waiting launch.
  absl::Status Claim(const AccessSet& set, Name name, Grant* grant);
  // Waits until every pinned block may be launched on: mapped, and whole or with an arrival event. `arrivals`
  // gets those events, each once. Fails with kAborted when a block lost its chunks again because its fetch
  // could not be started; the caller then releases the grant and claims anew.
  absl::Status WaitLaunchable(const Grant& grant, Name name, std::vector<CUevent>* arrivals);
  // Notes that a stream whose work goes up to `before` waits on the GPU for fetches under way.
  void RecordWaiter(const Grant& grant, TimelineValue before);
  // Removes the pins.
  void Release(Grant* grant);

  // Chunks that the device's thread should free for the first in the queue; 0 when none waits for chunks.
  uint64_t WantedLocked(const TableLock& lock) const;
  // Host buffers that the first in the queue lacks for the extents that it is to reach.
  uint64_t HostWantedLocked(const TableLock& lock) const;
  // Whether the first in the queue waits for such buffers, or for blocks that are to leave and come back
  // whole. Such a wait may end without a wake-up, so the claim must be woken to check again.
  bool waits_unheard(const TableLock& lock) const;
  // Whether the first in the queue is to reach that extent. Such an extent must not leave host memory for the
  // claim's sake.
  bool ReachesLocked(const TableLock& lock, const Block& block, size_t extent) const;
  // Makes the first in the queue reach the chunks that it lacks on the GPU, beside those that it reaches
  // already, because nothing else can leave. Returns false when kernels reach nothing here, or when it does
  // not lack chunks.
  bool ReachMoreLocked(const TableLock& lock);
  // Refuses the first in the queue, because nothing is left that the device's thread could free, and nothing
  // is under way.
  void RefuseHeadLocked(const TableLock& lock, const absl::Status& why);
  // Makes the first in the queue wait for a share of the device with which chunks can be `chunks`. Returns
  // false when a larger share would not help.
  bool SendForShareLocked(const TableLock& lock, uint64_t chunks);
  // The number of the first in the queue, never given twice; 0 when the queue is empty.
  uint64_t HeadLocked(const TableLock& lock) const {
    lock.Covers(core_->table);
    return queue_.empty() ? 0 : queue_.front()->number;
  }
  // Claims that are granted and not released.
  uint64_t grants(const TableLock& lock) const {
    lock.Covers(core_->table);
    return grants_;
  }

 private:
  struct Ticket {
    uint64_t number = 0;       // from 1
    uint64_t needed = 0;       // chunks that it lacks, once it is the first in the queue
    uint64_t reached = 0;      // chunks of the set that are reached or will be, at the last check
    uint64_t reaches = 0;      // chunks that must be reached at least, since nothing else can leave
    uint64_t host_wanted = 0;  // host buffers that are missing for that
    // Time since which it has waited for blocks that are to leave and come back whole, in nanoseconds of the
    // steady clock; 0 when it does not wait for them.
    int64_t homecoming_since = 0;
    std::vector<Reach::Part> parts;  // the extents that it is to reach, at the last check
    bool tried_again = false;        // with the full budget, after a refused chunk
    absl::Status refusal;
    uint64_t share_bytes = 0;  // the larger share of the device for which it waits, if any (GpuShare)
  };

  // The originators of pauses of the set's live blocks, as bits of PausedBy.
  uint8_t PausedByLocked(const TableLock& lock, const AccessSet& set) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Waits for a resume when a block of the set is paused, without a place in the queue. Refuses when the job
  // itself has to resume.
  absl::Status AwaitResume(const AccessSet& set, Name name) const;
  // Claim for a set without paused blocks. Returns kAborted when a block was paused meanwhile, or when the
  // ticket has a larger share for which to wait.
  absl::Status ClaimUnpaused(const AccessSet& set, Name name, Ticket* ticket, Grant* grant);
  // The blocks and chunks that a set lacks.
  struct Lack {
    std::vector<Block*> blocks;     // blocks that have no chunks
    std::vector<uint64_t> claimed;  // chunks to be claimed for each of these
    uint64_t chunks = 0;            // their sum
    uint64_t reached = 0;           // extents that are reached now
    bool busy = false;              // a block is being unmapped just now: its chunks are about to be free
    bool leaving = false;           // a block is on its way out, and may be taken back
  };
  // Chooses the extents of the lacking blocks that are to be reached, and subtracts them from the chunks to
  // be claimed. None when the set fits.
  std::vector<Reach::Part> ChooseReachedLocked(const TableLock& lock, const AccessSet& set,
                                               const Ticket& ticket, KernelPasses passes, Lack* lack)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Blocks that are reached in part although the set would fit the GPU: they are to leave, and to come back
  // whole. Empty when that was waited for in vain.
  std::vector<Block*> ToComeHomeLocked(const TableLock& lock, const AccessSet& set, const Ticket& ticket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Evicts those blocks where possible. Returns true while there are such blocks.
  bool AwaitsHomecomingLocked(const TableLock& lock, const AccessSet& set, Ticket* ticket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  Lack LackOfLocked(const TableLock& lock, const AccessSet& set)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Waits once for a change, and adds the name of the launch to the wait once it has become long. May release
  // the lock.
  absl::Status AwaitLocked(TableLock* lock, os::Wait* wait, Name name, bool* named)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  absl::Status ClaimInTurnLocked(TableLock* lock, const AccessSet& set, Name name, Ticket* ticket,
                                 Grant* grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool TryGrantLocked(TableLock* lock, const AccessSet& set, Ticket* ticket, Grant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool AllLaunchableLocked(const TableLock& lock, const Grant& grant, std::vector<CUevent>* arrivals);
  static bool IsLaunchableLocked(const TableLock& lock, const Block& block, std::vector<CUevent>* arrivals);
  void PinLocked(const TableLock& lock, const AccessSet& set, Grant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void UnpinLocked(const TableLock& lock, Grant* grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void DistributeLocked(const TableLock& lock, const std::vector<Reach::Part>& parts,
                        std::vector<PinnedBuffer>* buffers, std::vector<ChunkHandle>* handles, Grant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  uint64_t ChunksOfLocked(const AccessSet& set) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  absl::Status CheckFitsLocked(const TableLock& lock, const AccessSet& set)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool FitsWithReachLocked(const TableLock& lock, const AccessSet& set) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Refuses the ticket when the set can never fit. This is also asked for the first in the queue, because the
  // budget may have fallen since it came. A target that a refused chunk has lowered is first raised again,
  // once. Returns true when the target was raised, by that or by lending.
  bool RefuseIfTooLargeLocked(const TableLock& lock, const AccessSet& set, Ticket* ticket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);

  Core* const core_;
  Charges* const charges_;
  Faulter* const faulter_;
  Reach* const reach_;
  const Leave leave_;
  const std::function<void()> wake_;
  std::deque<Ticket*> queue_ ABSL_GUARDED_BY(core_->table.mu);
  uint64_t tickets_ ABSL_GUARDED_BY(core_->table.mu) = 0;
  uint64_t grants_ ABSL_GUARDED_BY(core_->table.mu) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_CLAIM_QUEUE_H_
