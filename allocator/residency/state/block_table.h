// BlockTable: all blocks of one device, their states, and the lock that guards them. Block: all that is known
// of one block, grouped by who writes it. Every part of the residency uses both. Launching threads read a
// block's gate without the lock; all else happens under it. Every change of state goes through MoveLocked,
// which aborts on an illegal one. Nothing here returns an error.

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
#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/launch_sets.h"
#include "allocator/memory/pin.h"
#include "allocator/memory/size_counts.h"
#include "allocator/residency/state/copy_backoff.h"
#include "allocator/residency/state/pause.h"
#include "allocator/tier/extent_home.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "policy/planner/victim_index.h"

namespace spillway::allocator {

// The states of a block. Pins, dirtiness, tier and transfers are fields of the block, not states.
// docs/states.md draws them and says who may move a block on.
enum class BlockState : uint8_t {
  kFree,      // not handed out, no chunks
  kEmpty,     // live, holds nothing worth keeping, no chunks
  kResident,  // live, its bytes are on the GPU
  kEvicting,  // live or freed, its bytes are on the GPU and on their way out
  kSpilled,   // live, its bytes are in host memory or spill files only
  kFaulting,  // live or freed, chunks mapped or being mapped, bytes on their way in
  kCached,    // freed, chunks kept for the next block of this size
};
inline constexpr int kBlockStates = 7;

const char* NameOf(BlockState state);

// Whether a block may go from `from` to `to`. No state may go to itself.
bool CanTransition(BlockState from, BlockState to);

// What a launching thread may do with a block without taking the lock.
enum class Gate : uint8_t {
  kClosed,   // take the slow path
  kOpen,     // mapped and whole: launch, then record the use
  kIgnored,  // no live block: an integer that looks like an address, or a stale pointer
};

// What all parts may see, under the lock, of an eviction or decommit under way. The Evictor has the rest of
// the job (EvictJob).
struct EvictionState {
  bool decommit = false;   // nothing is copied: the block holds nothing worth keeping
  bool cancelled = false;  // taken back
  bool committed = false;  // too late for that
  bool moving = false;     // may map, copy and unmap; audited launches wait for it
};

struct FetchJob;
class TableLock;

struct alignas(64) Block {
  // Read and written by launching threads without the lock, inside a read-side section.
  struct GateSide {
    os::Atomic<Gate> state{
        Gate::kIgnored};                   // written under the lock; pairs with the load after Section::Enter
    os::Atomic<bool> many_streams{false};  // more uses than entries: all launched so far counts
    // Named by a launch, or pinned for long, since the hand-out. A flag of its own, not a comparison of
    // `last_use`: of two threads that write `last_use` at once, the one with the lower number may write last.
    os::Atomic<bool> used{false};
    // The thread (ReadSections::NumberOf) that owns each entry of `uses`. 0: the entry has no owner, and
    // neither has any behind it. A thread takes an entry by an exchange. From then on it alone writes the
    // entry, so that recording a use costs a plain store.
    static constexpr size_t kUses = 6;
    std::array<os::Atomic<uint8_t>, kUses> use_owners{};
    os::Atomic<uint64_t> last_use{0};  // index of about the last launch that named it, 1-based; 0 = never
    os::Atomic<uint64_t> bytes{0};     // in whole chunks
    // The last uses by stream, as packed timeline values. Written between the launch and Section::Leave (or
    // under a pin); the Evictor reads them after ReadSections::WaitForAll.
    std::array<os::Atomic<uint64_t>, kUses> uses{};
  };
  // ---- What follows is guarded by BlockTable::mu; each struct is named after who writes it.

  // The table itself, in MoveLocked and in the methods for long-term pins.
  struct TableSide {
    std::array<uint32_t, kPinReasons> long_pins{};  // long-term pins of each reason that have not ended
    Block* previous = nullptr;                      // neighbours in the list of the blocks of this state
    Block* next = nullptr;
    uint32_t moves = 0;  // counts changes of the state: who has let go of the lock sees that there was one
  };
  // Allocations and FreeAddresses.
  struct AllocationSide {
    uint32_t generation = 0;  // counts hand-outs
    uint64_t requested_bytes = 0;
    uint64_t handed_out_at = 0;  // launch index at hand-out: the longest unused is decommitted first
    uint64_t freed_at = 0;       // order of frees: the oldest is decommitted first
    CUstream owner = nullptr;  // allocation stream, kept from use to use: it decides who may reuse the block
    StreamIndex owner_index = kNoStream;  // that stream's, also when it has been destroyed
    bool freed = false;                   // freed while a transfer was under way
    bool listed = false;                  // in the list of reusable addresses
    bool wanted = false;                  // an allocation waits for the end of its free
    // recordStream: what must complete before reuse and eviction. Renewed when the block is freed.
    std::vector<TimelineValue> recorded;
  };
  // The one that maps or unmaps it: the thread of a claim, the Evictor, the Faulter, or audit mode.
  struct MappingSide {
    std::vector<ChunkHandle> handles;
    bool mapping = false;               // chunks are being mapped or unmapped outside the lock
    bool unmapped = false;              // by the audit: the block keeps its chunks and bytes
    uint32_t peers = 0;                 // other devices, one bit each, that may touch what is mapped now
    std::vector<PinnedBuffer> reached;  // mapped behind `handles`: the last extents, in host memory (Reach)
  };
  // CleanCopies, and the transfers that fill and empty them.
  struct CopiesSide {
    std::vector<ExtentHome> homes;       // per extent, while kSpilled and kFaulting
    std::vector<ExtentHome> copy_homes;  // per extent, while kResident: a copy from before
    ContentHash content;                 // of the bytes at either, when known; at copy_homes it always is
    bool content_known = false;
    // Of this address: equal iterations hand equal addresses out.
    CopyBackoff backoff;
    bool written_unseen = false;  // on the way off the GPU, once: whoever gets the address stays
  };
  // The evictor.
  struct EvictionSide {
    EvictionState* job = nullptr;  // under way or draining
    int64_t spilled_at = 0;        // the last one's end (nanoseconds of the system's steady clock)
    bool clean = false;            // the last one copied nothing: the copy from before was still good
    // Evictions in a row that failed, when the last one did, and when it may be tried again (nanoseconds of the
    // system's steady clock).
    uint8_t failures = 0;
    int64_t failed_at = 0;
    int64_t again_at = 0;
  };
  // The faulter.
  struct FetchSide {
    FetchJob* job = nullptr;
    CUevent arrival = nullptr;  // kFaulting: everything has been enqueued, and is there once this completes
    bool prefetched = false;    // the fetch under way, or the last one, was on the plan's account
    absl::Status failure;       // why the last fetch was taken back, if it failed
    int64_t again_at = 0;       // when the plan may try it again (nanoseconds of the system's steady clock)
  };

  // The table, in PauseLocked; the region: Allocations.
  struct PauseSide {
    BlockRegion region;
    uint8_t by = 0;         // bits of PausedBy; not 0: no launch may name the block
    bool no_bytes = false;  // handed out during the pause: there is nothing to keep before it ends
  };

  GateSide gate;

  // Constant while the block exists.
  BlockId id;
  uint64_t address = 0;
  uint32_t chunks = 0;

  BlockState state = BlockState::kFree;  // BlockTable::MoveLocked alone writes it
  uint32_t pins = 0;                     // short-term, by ClaimQueue: launches in preparation need it
  uint32_t pin_reasons = 0;  // long-term, by BlockTable: a bit per PinReason; not 0: it may not leave
  TableSide table;
  AllocationSide allocation;
  MappingSide memory;
  CopiesSide copies;
  EvictionSide eviction;
  FetchSide fetch;
  PauseSide pause;

  bool paused() const { return pause.by != 0; }
  // Whether bytes that are away may be brought back ahead of need. `now`: of the system's steady clock.
  bool MayBeFetched(int64_t now) const {
    return state == BlockState::kSpilled && !memory.mapping && fetch.again_at < now;
  }
  bool used_since_hand_out() const { return gate.used.load(std::memory_order_relaxed); }
  // Whether it has memory of its own that is, or is about to be, mapped.
  bool has_chunks() const { return !memory.handles.empty() || !memory.reached.empty(); }
  // What of it must be, or is, the device's.
  uint32_t device_chunks() const { return chunks - static_cast<uint32_t>(memory.reached.size()); }
  // Forgets the recorded uses. All of them are over, the gate is closed, no thread is inside a section, and
  // there is no pin. Under the lock.
  void ForgetUses() {
    gate.many_streams.store(false);
    for (os::Atomic<uint64_t>& value : gate.uses) value.store(0, std::memory_order_relaxed);
    for (os::Atomic<uint8_t>& taker : gate.use_owners) taker.store(0, std::memory_order_relaxed);
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

  // The block with that id, which must be of this device. Any thread, no lock: records are never deleted. A
  // record may serve another address once its own has been given up (docs/threading.md, Records of blocks).
  Block& at(BlockId id) const {
    return pages_[id.index() / kPageBlocks].load(std::memory_order_acquire)[id.index() % kPageBlocks];
  }

  // A new block at that address, kFree, entered into the address map.
  Block* CreateLocked(const TableLock& lock, uint64_t address, uint32_t chunks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes a kFree block without chunks out of the address map; its id may be given to another.
  void DestroyLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // The block that covers the address; null when none does. Only while the lock is kept does the record
  // belong to that address.
  Block* FindLocked(const TableLock& lock, uint64_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Adds or ends one long-term pin. The block counts as used from the first pin on: what asked for the pin
  // may write it without a launch.
  void AddPinLocked(const TableLock& lock, Block* block, PinReason reason, uint64_t launches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void EndPinLocked(const TableLock& lock, Block* block, PinReason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The block has become live. The block has been freed, and its long-term pins were forgotten before.
  void NoteHandedOutLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void NoteFreedLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The block is being freed: none of its long-term pins counts any more.
  void ForgetPinsLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Pauses the live block, or takes that pause off. The gate of a paused block is closed in every state; it
  // may still leave the GPU.
  void PauseLocked(const TableLock& lock, Block* block, PausedBy by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void ResumeLocked(const TableLock& lock, Block* block, PausedBy by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // From now on blocks that become live are paused from outside, or no longer. They need no place elsewhere.
  void PauseNewLocked(const TableLock& lock, bool on) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { pause_new_ = on; }
  // Chunks of paused live blocks that may leave and whose bytes are kept.
  uint64_t PausedChunksLocked(const TableLock& lock) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return paused_chunks_;
  }

  // Changes the state; aborts with both states and the block on an illegal move. Opens or closes the gate.
  void MoveLocked(const TableLock& lock, Block* block, BlockState to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes an eviction or decommit back, before its commit point. True when the block is usable again, or
  // nothing was under way.
  bool CancelEvictionLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Closes the gate of a block that stays in its state, for a decommit, and opens it again.
  void CloseGateLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    block->gate.state.store(Gate::kClosed);
  }
  void RestoreGateLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    block->gate.state.store(GateOf(*block));
  }

  // Blocks of that state, the one that has been in it longest first. `visit` may change the state of its
  // block alone.
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
                                   BlockState::kSpilled, BlockState::kFaulting}) {
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
  // The block that has been in that state longest; null when there is none.
  Block* OldestLocked(const TableLock& lock, BlockState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return lists_[static_cast<int>(state)].first;
  }
  // Chunks of live blocks with a long-term pin.
  uint64_t PinnedChunksLocked(const TableLock& lock) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return pinned_chunks_;
  }
  // Chunks of the largest live block without one.
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

  // The sets of blocks that launches name together. Their largest needs no lock.
  LaunchSets& LaunchSetsLocked(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return launch_sets_;
  }
  uint64_t LargestLaunchBytes() const { return launch_sets_.largest_bytes(); }

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
  // Enters the block into the index of victims that fits its state and its pins.
  void EnterVictim(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveVictims(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void NoteUnpinned(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What paused_chunks_ has of the block.
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
  LaunchSets launch_sets_;  // guarded by mu, but for its largest
  uint64_t moves_[kBlockStates][kBlockStates] ABSL_GUARDED_BY(mu) = {};
};

// Holds the lock of a device's table. A function that needs the lock takes a TableLock by reference, so that
// it cannot be called without. A function that takes a pointer releases the lock for a time: its caller must
// look again at all that it saw under the lock.
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

  // Tells the compiler that the lock is that table's, where it cannot see so. Checked in builds with
  // SPILLWAY_LOCK_CHECKS, free otherwise.
  void Covers(const BlockTable& table) const ABSL_ASSERT_EXCLUSIVE_LOCK(table.mu) {
#ifdef SPILLWAY_LOCK_CHECKS
    table.mu.AssertLocked();
#endif
  }

#ifdef SPILLWAY_TEST_HOOKS
  // For callbacks that run inside the mutex's own checks: the lock is taken already, and stays so.
  struct AlreadyLocked {};
  explicit TableLock(AlreadyLocked) : mu_(nullptr) {}
#endif

 private:
  os::Mutex* const mu_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_TABLE_H_
