// ClaimQueue: the slow way through the gate. A launch whose blocks are not all resident claims chunks for
// what is missing: all of them or none, first come first served. Only the first in the queue may have pins
// while it waits. Once granted, chunks and pins are the claim's until Release. Launches calls it on
// launching threads; Reclaimer asks on the device's thread what the first in the queue lacks, and may refuse
// it. Where kernels can reach the host tier, what does not fit the GPU together stays in part there (Reach).
// A claim fails when its blocks cannot fit, when the device stops, and at the user's limit of a wait.

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

// A granted claim: the live blocks of the set, all pinned, and those whose chunks this thread must map and
// fill.
struct Grant {
  uint64_t tag = 0;                          // of the launch that claims, for reports; 0: none
  KernelPasses passes = KernelPasses::kOne;  // of it, where it may not fit the GPU
  std::vector<Block*> pinned;
  std::vector<Block*> to_map;    // were kEmpty
  std::vector<Block*> to_fetch;  // were kSpilled
};

class ClaimQueue {
 public:
  // The name of the launch that waits, for people. Asked for only when a wait gets long, without a lock.
  using Name = absl::FunctionRef<std::string()>;

  // Has these blocks, which may leave, leave the GPU.
  using Leave = std::function<void(const TableLock& lock, const std::vector<Block*>& blocks)>;

  // `wake` makes the device's thread look for victims.
  ClaimQueue(Core* core, Charges* charges, Faulter* faulter, Reach* reach, Leave leave,
             std::function<void()> wake);

  // Pins every live block of the set and gives chunks to those without. Waits for its turn and for chunks.
  // kResourceExhausted with words when the set can never fit; kFailedPrecondition when the job has paused a
  // block of it; the device's error; kCancelled at the end of the process; kDeadlineExceeded at the user's
  // limit. Has no chunk, section or staging buffer while it waits. `name`: what waits.
  absl::Status Claim(const AccessSet& set, Name name, Grant* grant);
  // Waits until every pinned block may be launched on: mapped, and whole or with an arrival event. `arrivals`
  // gets those events, each once. kAborted when a block lost its chunks again because its fetch could not be
  // started: release, and claim anew.
  absl::Status WaitLaunchable(const Grant& grant, Name name, std::vector<CUevent>* arrivals);
  // Notes that a stream which has come to `before` waits on the GPU for fetches under way.
  void NoteWaiter(const Grant& grant, TimelineValue before);
  // Takes the pins off.
  void Release(Grant* grant);

  // Chunks that the device's thread should free for the first in the queue; 0 when none waits for chunks.
  uint64_t WantedLocked(const TableLock& lock) const;
  // Host buffers that the first in the queue lacks for what it is to reach.
  uint64_t HostWantedLocked(const TableLock& lock) const;
  // Whether it waits for such buffers, or for blocks that are to leave and come back whole: nobody may report them,
  // and it is to be woken to look again.
  bool waits_unheard(const TableLock& lock) const;
  // Whether it is to reach that extent: then that is not to leave host memory for its sake.
  bool ReachesLocked(const TableLock& lock, const Block& block, size_t extent) const;
  // Has the first in the queue reach what it lacks of the GPU, beside what it reaches already: nothing else can
  // leave. False: kernels reach nothing here, or it lacks more than it brings in.
  bool ReachMoreLocked(const TableLock& lock);
  // Refuses the first in the queue: nothing is left that the device's thread could free, and nothing is under
  // way.
  void RefuseHeadLocked(const TableLock& lock, const absl::Status& why);
  // Sends the first in the queue to wait for a share of the device with which chunks can be so many. False: the
  // share is not what is short.
  bool SendForShareLocked(const TableLock& lock, uint64_t chunks);
  // The number of the first in the queue, never given twice; 0 when the queue is empty.
  uint64_t HeadLocked(const TableLock& lock) const {
    lock.Covers(core_->table);
    return queue_.empty() ? 0 : queue_.front()->number;
  }
  // Claims granted and not released.
  uint64_t grants(const TableLock& lock) const {
    lock.Covers(core_->table);
    return grants_;
  }

 private:
  struct Ticket {
    uint64_t number = 0;       // from 1
    uint64_t needed = 0;       // chunks, once it is the first in the queue
    uint64_t reached = 0;      // chunks of the set that are reached, or are to be, as of the last look
    uint64_t reaches = 0;      // chunks that are to be reached at least, since nothing else can leave
    uint64_t host_wanted = 0;  // host buffers that are missing for that
    // Since when it has waited for blocks that are to leave and come back whole: ns of the steady clock; 0: it does not.
    int64_t homecoming_since = 0;
    std::vector<Reach::Part> parts;  // what it is to reach, as of the last look
    bool tried_again = false;        // the full budget, after a refused chunk
    absl::Status refusal;
    uint64_t share_bytes = 0;  // where a greater share of the device is what it waits for (GpuShare)
  };

  // By whom live blocks of the set are paused: bits of PausedBy.
  uint8_t PausedByLocked(const TableLock& lock, const AccessSet& set) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Waits for a resume where a block of the set is paused, without a place in the queue; refuses where the
  // job itself has to resume.
  absl::Status AwaitResume(const AccessSet& set, Name name) const;
  // As Claim; kAborted when a block was paused meanwhile, or a greater share is to be waited for, which the
  // ticket then has.
  absl::Status ClaimUnpaused(const AccessSet& set, Name name, Ticket* ticket, Grant* grant);
  // What a set lacks.
  struct Lack {
    std::vector<Block*> blocks;     // that have no chunks
    std::vector<uint64_t> claimed;  // chunks to be claimed, for each of these
    uint64_t chunks = 0;            // all of them
    uint64_t reached = 0;           // extents that are reached now
    bool busy = false;              // a block is being unmapped just now: its chunks are about to be free
    bool leaving = false;           // a block is on its way out, and may be taken back
  };
  // What of the lacking blocks is to be reached: takes it from what is to be claimed. Nothing where the set fits.
  std::vector<Reach::Part> ChooseReachedLocked(const TableLock& lock, const AccessSet& set,
                                               const Ticket& ticket, KernelPasses passes, Lack* lack)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Blocks that are reached in part, though the set would fit the GPU: they are to leave, and to come back whole.
  // Empty where that has been waited for in vain.
  std::vector<Block*> ToComeHomeLocked(const TableLock& lock, const AccessSet& set, const Ticket& ticket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Has them leave where they can. True while there are such.
  bool AwaitsHomecomingLocked(const TableLock& lock, const AccessSet& set, Ticket* ticket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  Lack LackOfLocked(const TableLock& lock, const AccessSet& set)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Waits once for a change; once the wait has become long, gives it the name of the launch. May release the
  // lock.
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
  // The same for the first in the queue, whose budget may have fallen since it came. A target that a refused
  // chunk has lowered is raised again, once, before that counts.
  // True when the target was raised, by that or by lending.
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
