// Block: everything about one block. BlockTable: owns all blocks of a device, their states and the lock that guards
// them. Every change of state goes through BlockTable::Move, which checks that it is legal.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_TABLE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_TABLE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/content_hash.h"
#include "allocator/driver/stream_ref.h"
#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/block_sizes.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/launch_sets.h"
#include "allocator/memory/pin.h"
#include "allocator/tier/chunk_home.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "policy/planner/victim_index.h"

namespace spillway::allocator {

// The states of a block. Pins, dirtiness, tier and transfers are fields of the block, not states. docs/states.md draws
// them and says who may move a block on.
enum class BlockState : uint8_t {
  kFree,      // not handed out, no chunks
  kEmpty,     // live, holds nothing worth keeping, no chunks
  kResident,  // live, its bytes are on the GPU
  kEvicting,  // live or freed, its bytes are on the GPU and on their way out
  kSpilled,   // live, its bytes are in host memory or spill files only
  kFaulting,  // live or freed, chunks mapped or being mapped, bytes on their way in
  kCached,    // freed, chunks kept for the next block of this size
  kLost,      // live, the only copy could not be read
};
inline constexpr int kBlockStates = 8;

const char* NameOf(BlockState state);

// Whether a block may go from `from` to `to`. No state may go to itself.
bool CanTransition(BlockState from, BlockState to);

// What a launching thread may do with a block without taking the lock.
enum class Gate : uint8_t {
  kClosed,   // take the slow path
  kOpen,     // mapped and whole: launch, then stamp
  kIgnored,  // nobody's block: an integer that looks like an address, or a stale pointer
};

// A block whose copy was of no use k times in a row is left alone for its next 2^k - 1 evictions, at most 63.
class CopyHabit {
 public:
  // At an eviction that writes: whether its bytes are to be hashed and the copy kept. Counts the eviction.
  bool WantsHash() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  // The copy was the block's content still.
  void NoteUnchanged() { misses_ = 0, skip_ = 0, proven_ = true; }
  // The block had changed, or was freed with its copy unused.
  void NoteUseless() {
    if (misses_ < 6) ++misses_;
    skip_ = static_cast<uint8_t>((1u << misses_) - 1);
    proven_ = false;
  }
  // The last copy was of use.
  bool proven() const { return proven_; }

 private:
  uint8_t misses_ = 0;
  uint8_t skip_ = 0;
  bool proven_ = false;
};

// What everybody may see of an eviction or strip under way, under the lock; the rest of the job is the evictor's.
struct Departure {
  bool strip = false;      // nothing is copied: the block holds nothing worth keeping
  bool cancelled = false;  // taken back
  bool committed = false;  // too late for that
  bool moving = false;     // may map, copy and unmap; audited launches wait for it
};

struct FetchJob;
class TableLock;

struct alignas(64) Block {
  // Read and written by launching threads without the lock, inside a gate slot.
  struct GateSide {
    os::Atomic<Gate> state{Gate::kIgnored};  // written under the lock; pairs with the load after Slot::Enter
    os::Atomic<bool> many_streams{false};    // more uses than stamps: everything launched so far counts
    // Named by a launch or held since the hand-out. A flag, not a comparison of `last_use`: of two threads that write
    // that one, who took the lower number may come last.
    os::Atomic<bool> used{false};
    // Whose each stamp is, by GateSlots::NumberOf; 0: nobody's yet, nor any behind it. A thread takes one by an
    // exchange and is from then on the only one that writes it, so that a stamp costs a plain store.
    static constexpr size_t kStamps = 6;
    std::array<os::Atomic<uint8_t>, kStamps> stamp_owners{};
    os::Atomic<uint64_t> last_use{0};  // index of about the last launch that named it, 1-based; 0 = never
    os::Atomic<uint64_t> bytes{0};     // in whole chunks
    // Last uses by stream, as packed stamps. Written between the launch and Slot::Leave (or under a pin), read by
    // the evictor after GateSlots::WaitForAll.
    std::array<os::Atomic<uint64_t>, kStamps> stamps{};
  };
  // ---- What follows is guarded by BlockTable::mu; each struct is named after who writes it.

  // The table, by MoveLocked and by what it says of holds.
  struct TableSide {
    std::array<uint32_t, kHoldReasons> holds{};  // how many holds of each reason are not ended
    Block* previous = nullptr;                   // neighbours in the list of the blocks of this state
    Block* next = nullptr;
  };
  // Allocations and FreeAddresses.
  struct AllocationSide {
    uint32_t generation = 0;  // counts hand-outs
    uint64_t requested_bytes = 0;
    uint64_t handed_out_at = 0;  // launch index at hand-out, for stripping the longest unused first
    uint64_t freed_at = 0;       // order of frees, for stripping the oldest first
    CUstream owner = nullptr;  // allocation stream, kept from use to use: it decides who may reuse the block
    bool freed = false;        // freed while a transfer was under way
    bool listed = false;       // in the list of reusable addresses
    bool wanted = false;       // an allocation waits for the end of its free
    std::vector<Stamp> recorded;  // recordStream: what must complete before reuse and eviction
  };
  // Whoever maps it: the thread of a claim, the evictor, the faulter, audit.
  struct MappingSide {
    std::vector<ChunkHandle> handles;
    bool mapping = false;  // chunks are being mapped or unmapped outside the lock
    bool hidden = false;   // audit: has its chunks and its bytes, but is not mapped now
    uint32_t peers = 0;    // other devices, one bit each, that may touch what is mapped now
  };
  // CleanCopies, and the transfers that fill and empty them.
  struct CopiesSide {
    std::vector<ChunkHome> homes;       // per chunk, while kSpilled and kFaulting
    std::vector<ChunkHome> copy_homes;  // per chunk, while kResident: a copy from before
    ContentHash content;                // of the bytes at either, when known; at copy_homes it always is
    bool content_known = false;
    CopyHabit habit;  // of this address: equal iterations hand equal addresses out
  };
  // The evictor.
  struct EvictionSide {
    Departure* job = nullptr;  // under way or draining
    // Evictions in a row that failed, and when it may be tried again (nanoseconds of the system's steady clock).
    uint8_t failures = 0;
    int64_t again_at = 0;
  };
  // The faulter.
  struct FetchSide {
    FetchJob* job = nullptr;
    CUevent arrival = nullptr;  // kFaulting: everything has been enqueued, and is there once this completes
    bool prefetched = false;    // the fetch under way, or the last one, was on the plan's account
    absl::Status failure;       // why the last fetch was taken back, if it failed
  };

  GateSide gate;

  // Constant while the block exists.
  BlockId id;
  uint64_t address = 0;
  uint32_t chunks = 0;

  BlockState state = BlockState::kFree;  // BlockTable::MoveLocked alone writes it
  uint32_t pins = 0;                     // ClaimQueue's: launches that need it where it is
  uint32_t held_reasons = 0;             // BlockTable's: bit per HoldReason; not zero: does not leave
  TableSide table;
  AllocationSide allocation;
  MappingSide memory;
  CopiesSide copies;
  EvictionSide eviction;
  FetchSide fetch;

  bool used_since_hand_out() const { return gate.used.load(std::memory_order_relaxed); }
  bool holds_chunks() const { return !memory.handles.empty(); }
  // All uses are over, the gate is closed, nobody inside and no pin taken. Under the lock.
  void ForgetUses() {
    gate.many_streams.store(false);
    for (os::Atomic<uint64_t>& stamp : gate.stamps) stamp.store(0, std::memory_order_relaxed);
    for (os::Atomic<uint8_t>& taker : gate.stamp_owners) taker.store(0, std::memory_order_relaxed);
  }
  bool live() const {
    return !allocation.freed && state != BlockState::kFree && state != BlockState::kCached;
  }
};

class BlockTable {
 public:
  BlockTable(int device, AddressMap* addresses);
  ~BlockTable();

  // Guards states, transfers, claims and chunks of this device. Taken by TableLock.
  mutable os::Mutex mu{os::LockRank::kResidency};
  // Signalled when a state, the chunks or the queue of claims has changed.
  os::CondVar changed;

  // The block with that id, which must be of this device. Any thread, no lock: records are never deleted, though one may
  // serve another address once its own is given up (docs/threading.md, Records of blocks).
  Block& at(BlockId id) const {
    return pages_[id.index() / kPageBlocks].load(std::memory_order_acquire)[id.index() % kPageBlocks];
  }

  // A new block at that address, kFree, entered into the address map.
  Block* CreateLocked(const TableLock& lock, uint64_t address, uint32_t chunks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes a kFree block without chunks out of the address map; its id may be given to another.
  void DestroyLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // The table's block that holds the address; null when none does. Only under the lock is it certain that the record is
  // still that address's.
  Block* FindLocked(const TableLock& lock, uint64_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Counts one hold more, or one less. The block counts as used: whoever needs the hold may write it unseen.
  void AddHoldLocked(const TableLock& lock, Block* block, HoldReason reason, uint64_t launches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void EndHoldLocked(const TableLock& lock, Block* block, HoldReason reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The block has become live; has been freed, with its holds forgotten before.
  void NoteHandedOutLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void NoteFreedLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The block is freed: none of its holds counts any more.
  void ForgetHoldsLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Changes the state; aborts with both states and the block on an illegal move. Opens or closes the gate.
  void MoveLocked(const TableLock& lock, Block* block, BlockState to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes an eviction or strip back before its commit point; true when the block is usable again.
  bool CancelDepartureLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Closes the gate of a block that stays in its state, for a strip, and opens it again.
  void CloseGateLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    block->gate.state.store(Gate::kClosed);
  }
  void RestoreGateLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    block->gate.state.store(GateOf(*block));
  }

  // Blocks of that state, the one that has been in it longest first. `visit` may change the state of its block alone.
  template <typename Visitor>
  void ForEachLocked(const TableLock& lock, BlockState state, Visitor visit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    for (Block* block = lists_[static_cast<int>(state)].first; block != nullptr;) {
      Block* const next = block->table.next;
      visit(block);
      block = next;
    }
  }
  // Live blocks, by state. As above.
  template <typename Visitor>
  void ForEachLiveLocked(const TableLock& lock, Visitor visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    for (const BlockState state : {BlockState::kEmpty, BlockState::kResident, BlockState::kEvicting,
                                   BlockState::kSpilled, BlockState::kFaulting, BlockState::kLost}) {
      ForEachLocked(lock, state, [&](Block* block) {
        if (!block->allocation.freed) visit(block);
      });
    }
  }
  // All blocks that exist. Grows with the history of the job: for tests and checks.
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
  // Blocks that have been in that state longest; null when there is none.
  Block* OldestLocked(const TableLock& lock, BlockState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return lists_[static_cast<int>(state)].first;
  }
  // Of live blocks with a hold.
  uint64_t held_chunks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return held_chunks_; }

  // Who may leave, by key of the block (KeyOf): freed ones with chunks, resident ones that are not held. A resident block
  // that nobody has used since its hand-out is entered as unused, until somebody looks and finds it used.
  struct Victims {
    policy::VictimIndex cached;
    policy::VictimIndex unused;
    policy::VictimIndex idle;
  };
  Victims victims ABSL_GUARDED_BY(mu);
  static policy::VictimIndex::Key KeyOf(const Block& block) { return block.id.index(); }
  Block* BlockOf(policy::VictimIndex::Key key) const { return &at(BlockId(device_, key)); }

  LaunchSets launch_sets;  // guarded by mu, but for largest_bytes
  // Of live blocks without a hold.
  uint32_t largest_leaver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return leaver_sizes_.Largest(); }

  // How often each legal move was made, for tests.
  uint64_t MovesLocked(const TableLock& lock, BlockState from, BlockState to) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return moves_[static_cast<int>(from)][static_cast<int>(to)];
  }
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
  // Enters the block among the victims that its state and holds make it one of.
  void EnterVictim(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveVictims(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void NoteUnheld(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const int device_;
  AddressMap* const addresses_;
  // Release store in CreateLocked, acquire load in at().
  std::unique_ptr<os::Atomic<Block*>[]> pages_;
  uint32_t next_index_ ABSL_GUARDED_BY(mu) = 1;
  std::vector<uint32_t> free_indices_ ABSL_GUARDED_BY(mu);
  List lists_[kBlockStates] ABSL_GUARDED_BY(mu);
  uint64_t held_chunks_ ABSL_GUARDED_BY(mu) = 0;
  BlockSizes leaver_sizes_ ABSL_GUARDED_BY(mu);
  uint64_t moves_[kBlockStates][kBlockStates] ABSL_GUARDED_BY(mu) = {};
};

// Holds the lock of a device's table. Who needs the lock takes one by reference, so that nobody calls without; who takes
// a pointer lets go of the lock in between, so that all that was seen under it must be looked at again.
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

  // The lock is that table's: tells the compiler so, where it cannot see it. Costs nothing.
  void Covers(const BlockTable& table) const ABSL_ASSERT_EXCLUSIVE_LOCK(table.mu) {
#ifdef SPILLWAY_LOCK_CHECKS
    table.mu.AssertHeld();
#endif
  }

#ifdef SPILLWAY_TEST_HOOKS
  // For who is called by the mutex itself: the lock is held, and stays so.
  struct AlreadyHeld {};
  explicit TableLock(AlreadyHeld) : mu_(nullptr) {}
#endif

 private:
  os::Mutex* const mu_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_TABLE_H_
