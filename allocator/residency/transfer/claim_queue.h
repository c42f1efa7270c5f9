// ClaimQueue: the slow way into the gate. A launch whose set is not resident claims chunks for what is missing: all
// or nothing, first come first served. Only the head of the queue holds pins; once granted, its chunks and pins are
// its own until it lets go.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_CLAIM_QUEUE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_CLAIM_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/faulter.h"

namespace spillway::allocator {

// A granted claim: pins on all live blocks of the set, and the blocks whose chunks this thread must map and fill.
struct Grant {
  std::vector<Block*> pinned;
  std::vector<Block*> to_map;    // were kEmpty
  std::vector<Block*> to_fetch;  // were kSpilled
};

class ClaimQueue {
 public:
  // Who waits, in words; asked only when the wait gets long. No lock is held.
  using Name = absl::FunctionRef<std::string()>;

  // `wake` makes the device's thread look for victims.
  ClaimQueue(Core* core, Charges* charges, Faulter* faulter, std::function<void()> wake);

  // Pins every live block of the set and gives chunks to those without; waits for its turn and for room.
  // kResourceExhausted with words when the set can never fit; the device's error, kCancelled at the end, kDeadlineExceeded
  // at the user's limit. Holds no chunk, no slot, no staging while it waits. `name` says who waits.
  absl::Status Claim(const AccessSet& set, Name name, Grant* grant);
  // Waits until every pinned block may be launched on: mapped, and whole or with an arrival event (collected, no
  // repeats). kAborted when a block lost its chunks again (its starter failed): let go and claim anew.
  absl::Status WaitLaunchable(const Grant& grant, Name name, std::vector<CUevent>* arrivals);
  // A stream that has come to `before` waits on the GPU for what is on its way.
  void NoteWaiter(const Grant& grant, Stamp before);
  // Takes the pins off.
  void Release(Grant* grant);

  // What the device's thread should free for the head: chunks that it lacks now; 0 when nobody waits for room.
  uint64_t WantedLocked(const TableLock& lock) const;
  // The device's thread found nothing left to free, nothing under way and nothing running: the head cannot be served.
  void RefuseHeadLocked(const TableLock& lock, const absl::Status& why);
  // Names the head, null when there is none.
  const void* HeadLocked(const TableLock& lock) const {
    lock.Covers(core_->table);
    return queue_.empty() ? nullptr : queue_.front();
  }
  // Claims granted and not let go.
  uint64_t grants(const TableLock& lock) const {
    lock.Covers(core_->table);
    return grants_;
  }

 private:
  struct Ticket {
    uint64_t needed = 0;       // chunks, once it is the head
    bool tried_again = false;  // the full budget, after a refused chunk
    absl::Status refusal;
  };

  // What a set lacks.
  struct Lack {
    uint64_t chunks = 0;   // to be claimed
    bool busy = false;     // a block is being unmapped just now: its chunks are about to be free
    bool leaving = false;  // a block is on its way out, for whoever is the head
  };
  Lack LackOfLocked(const TableLock& lock, const AccessSet& set)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // One step of a wait, that says of whom once it is worth it. May release the lock.
  absl::Status AwaitLocked(TableLock* lock, os::Wait* wait, Name name, bool* named)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  absl::Status ClaimInTurnLocked(TableLock* lock, const AccessSet& set, Name name, Grant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool TryGrantLocked(TableLock* lock, const AccessSet& set, Ticket* ticket, Grant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  static bool IsLaunchableLocked(const TableLock& lock, const Block& block, std::vector<CUevent>* arrivals);
  void PinLocked(const TableLock& lock, const AccessSet& set, Grant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void UnpinLocked(const TableLock& lock, Grant* grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void DistributeLocked(const TableLock& lock, std::vector<ChunkHandle>* chunks, Grant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Free chunks, then new ones; the lock is released around creation. All or nothing.
  bool TakeChunksLocked(TableLock* lock, uint64_t needed, std::vector<ChunkHandle>* chunks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  absl::Status CheckFitsLocked(const TableLock& lock, const AccessSet& set)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // The same for the head, whose budget may have fallen since it came; a target that a refused chunk lowered is
  // raised again once before that counts.
  void RefuseIfTooLargeLocked(const TableLock& lock, const AccessSet& set, Ticket* ticket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);

  Core* const core_;
  Charges* const charges_;
  Faulter* const faulter_;
  const std::function<void()> wake_;
  std::deque<Ticket*> queue_ ABSL_GUARDED_BY(core_->table.mu);
  uint64_t grants_ ABSL_GUARDED_BY(core_->table.mu) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_CLAIM_QUEUE_H_
