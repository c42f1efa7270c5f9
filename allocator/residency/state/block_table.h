// BlockTable: all blocks of one device, their states, and the lock that guards them. Every component of the
// residency uses it. Launching threads read a block's gate without the lock; everything else happens under
// the lock. Every change of state goes through MoveLocked, which aborts on an illegal one. Nothing here
// returns an error.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_TABLE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_TABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/launch_sets.h"
#include "allocator/memory/size_counts.h"
#include "allocator/residency/state/block.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "policy/planner/victim_index.h"

namespace spillway::allocator {

class TableLock;

class BlockTable {
 public:
  BlockTable(int device, AddressMap* addresses);
  ~BlockTable();

  // Guards states, transfers, claims and chunks of this device. Taken by TableLock.
  mutable os::Mutex mu{os::LockRank::kResidency};
  // Signaled when a state, the chunks or the queue of claims has changed.
  os::CondVar changed;

  // The block with that id, which must be of this device. Any thread, without the lock: records are never
  // deleted. A record may serve another address after its own has been given up (docs/threading.md, Records
  // of blocks).
  Block& at(BlockId id) const {
    return pages_[id.index() / kPageBlocks].load(std::memory_order_acquire)[id.index() % kPageBlocks];
  }

  // Creates a block at that address, in state kFree, and enters it into the address map.
  Block* CreateLocked(const TableLock& lock, uint64_t address, uint32_t chunks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes a kFree block without chunks out of the address map. Its id may then be given to another block.
  void DestroyLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // The block that covers the address; null when none does. The record belongs to that address only while the
  // lock is kept.
  Block* FindLocked(const TableLock& lock, uint64_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Adds or ends one long-term pin. The block counts as used from the first pin on, because whatever asked
  // for the pin may write the block without a launch.
  void AddPinLocked(const TableLock& lock, Block* block, PinReason reason, uint64_t launches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void EndPinLocked(const TableLock& lock, Block* block, PinReason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Called when the block has become live, and when it has been freed. ForgetPinsLocked must have been called
  // before a free.
  void RecordHandedOutLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordFreedLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Called at the start of a free: none of the block's long-term pins counts any more.
  void ForgetPinsLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Pauses the live block, or ends that pause. The gate of a paused block is closed in every state; the block
  // may still leave the GPU.
  void PauseLocked(const TableLock& lock, Block* block, PausedBy by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void ResumeLocked(const TableLock& lock, Block* block, PausedBy by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Sets whether blocks that become live are paused from outside. Such blocks need no place elsewhere.
  void PauseNewLocked(const TableLock& lock, bool on) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { pause_new_ = on; }
  bool pauses_new(const TableLock& lock) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return pause_new_; }
  // Chunks of paused live blocks that may leave and whose bytes are kept.
  uint64_t PausedChunksLocked(const TableLock& lock) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return paused_chunks_;
  }

  // Changes the state, and opens or closes the gate. Aborts with both states and the block on an illegal
  // move.
  void MoveLocked(const TableLock& lock, Block* block, BlockState to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes an eviction or decommit back before its commit point. Returns true when the block is usable again,
  // or when nothing was under way.
  bool CancelEvictionLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Closes the gate of a block that stays in its state, for a decommit, and opens it again.
  void CloseGateLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    block->gate.state.store(Gate::kClosed);
  }
  void RestoreGateLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    block->gate.state.store(GateOf(*block));
  }

  // Visits the blocks of that state, starting with the one that has been in it longest. `visit` may change
  // the state of its own block only.
  template <typename Visitor>
  void ForEachLocked(const TableLock& lock, BlockState state, Visitor visit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    for (Block* block = lists_[static_cast<int>(state)].first; block != nullptr;) {
      Block* const next = block->table.next;
      visit(block);
      block = next;
    }
  }
  // Visits live blocks, by state, under the same rule.
  template <typename Visitor>
  void ForEachLiveLocked(const TableLock& lock, Visitor visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    for (const BlockState state : {BlockState::kEmpty, BlockState::kResident, BlockState::kEvicting,
                                   BlockState::kSpilled, BlockState::kFaulting}) {
      ForEachLocked(lock, state, [&](Block* block) {
        if (!block->allocation.freed) visit(block);
      });
    }
  }
  // Visits all blocks that exist. The time grows with the history of the job, so this is for tests and
  // checks.
  template <typename Visitor>
  void ForEachLocked(const TableLock& lock, Visitor visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    for (int state = 0; state < kBlockStates; ++state)
      ForEachLocked(lock, static_cast<BlockState>(state), visit);
  }
  size_t CountLocked(const TableLock& lock, BlockState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return lists_[static_cast<int>(state)].count;
  }
  uint64_t ChunksLocked(const TableLock& lock, BlockState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return lists_[static_cast<int>(state)].chunks;
  }
  // The block that has been in that state longest; null when there is none.
  Block* OldestLocked(const TableLock& lock, BlockState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return lists_[static_cast<int>(state)].first;
  }
  // Chunks of live blocks with a long-term pin.
  uint64_t PinnedChunksLocked(const TableLock& lock) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return pinned_chunks_;
  }
  // Chunks of the largest live block without a long-term pin.
  uint32_t LargestUnpinnedLocked(const TableLock& lock) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return unpinned_sizes_.Largest();
  }

  // The blocks that may leave, by key (KeyOf): freed ones with chunks, and resident ones without a long-term
  // pin. A resident block that was not used since its hand-out is entered as unused; the Reclaimer moves it
  // to `idle` when it finds it used.
  struct Victims {
    policy::VictimIndex cached;
    policy::VictimIndex unused;
    policy::VictimIndex idle;
  };
  Victims victims ABSL_GUARDED_BY(mu);
  uint64_t reached_extents ABSL_GUARDED_BY(mu) = 0;  // of all blocks; Reach alone writes it
  static policy::VictimIndex::Key KeyOf(const Block& block) { return block.id.index(); }
  Block* BlockOf(policy::VictimIndex::Key key) const { return &at(BlockId(device_, key)); }

  // The sets of blocks that launches name together. Reading the largest takes no lock.
  LaunchSets& LaunchSetsLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return launch_sets_;
  }
  uint64_t LargestLaunchBytes() const { return launch_sets_.largest_bytes(); }

  // Aborts unless every block's fields agree with its state.
  void CheckInvariantsLocked(const TableLock& lock) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

 private:
  static constexpr uint32_t kPageBlocks = 1024;
  static constexpr uint32_t kPages = 4096;

  struct List {
    Block* first = nullptr;
    Block* last = nullptr;
    size_t count = 0;
    uint64_t chunks = 0;
  };

  static Gate GateOf(const Block& block);
  void Link(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Unlink(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Enters the block into the index of victims that fits its state and its pins.
  void EnterVictim(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveVictims(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordUnpinned(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The block's part of paused_chunks_.
  static uint64_t PausedChunksOf(const Block& block) {
    const bool kept = KeepsBytes(block.pause.region, block.pause.by) && !block.pause.no_bytes;
    return block.paused() && kept && block.pin_reasons == 0 ? block.chunks : 0;
  }
  void ChangePause(Block* block, uint8_t by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const int device_;
  AddressMap* const addresses_;
  // Release store in CreateLocked, acquire load in at().
  std::unique_ptr<os::Atomic<Block*>[]> pages_;
  uint32_t next_index_ ABSL_GUARDED_BY(mu) = 1;
  std::vector<uint32_t> free_indices_ ABSL_GUARDED_BY(mu);
  List lists_[kBlockStates] ABSL_GUARDED_BY(mu);
  uint64_t pinned_chunks_ ABSL_GUARDED_BY(mu) = 0;
  uint64_t paused_chunks_ ABSL_GUARDED_BY(mu) = 0;
  bool pause_new_ ABSL_GUARDED_BY(mu) = false;
  SizeCounts unpinned_sizes_ ABSL_GUARDED_BY(mu);
  LaunchSets launch_sets_;  // guarded by mu, except its largest
};

// Keeps the lock of a device's table for a scope. A function that needs the lock takes a TableLock by
// reference, so it cannot be called without the lock. A function that takes a pointer releases the lock for a
// time; its caller must then check again all that it saw under the lock.
class ABSL_SCOPED_LOCKABLE TableLock {
 public:
  explicit TableLock(const BlockTable& table) ABSL_EXCLUSIVE_LOCK_FUNCTION(table.mu) : mu_(&table.mu) {
    mu_->Lock();
  }
  ~TableLock() ABSL_UNLOCK_FUNCTION() {
    if (mu_ != nullptr) mu_->Unlock();
  }
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;

  // Tells the compiler that this is that table's lock, where it cannot see so. The claim is checked in builds
  // with SPILLWAY_LOCK_CHECKS, and costs nothing otherwise.
  void Covers(const BlockTable& table) const ABSL_ASSERT_EXCLUSIVE_LOCK(table.mu) {
#ifdef SPILLWAY_LOCK_CHECKS
    table.mu.AssertLocked();
#endif
  }

#ifdef SPILLWAY_TEST_HOOKS
  // For callbacks that run inside the mutex's own checks: the lock is already taken and stays so.
  struct AlreadyLocked {};
  explicit TableLock(AlreadyLocked) : mu_(nullptr) {}
#endif

 private:
  os::Mutex* const mu_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_TABLE_H_
