// Block: everything about one block. BlockTable: owns all blocks of a device, their states and the lock that guards
// them. Every change of state goes through BlockTable::Move, which checks that it is legal.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_BLOCK_TABLE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_BLOCK_TABLE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/block_sizes.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/residency/block_state.h"
#include "allocator/residency/clean_copies.h"
#include "allocator/residency/hold.h"
#include "allocator/residency/launch_sets.h"
#include "allocator/residency/stream_clock.h"
#include "allocator/tier/host_pool.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "io/spill_store.h"
#include "policy/planner/victim_index.h"

namespace spillway::allocator {

// What a launching thread may do with a block without taking the lock.
enum class Gate : uint8_t {
  kClosed,   // take the slow path
  kOpen,     // mapped and whole: launch, then stamp
  kIgnored,  // nobody's block: an integer that looks like an address, or a stale pointer
};

struct EvictJob;
struct FetchJob;

struct alignas(64) Block {
  // ---- Read and written by launching threads without the lock, inside a gate slot.

  os::Atomic<Gate> gate{
      Gate::kIgnored};  // written under the lock; pairs with the gate's load after Slot::Enter
  os::Atomic<bool> many_streams{false};  // more uses than stamps: everything launched so far counts
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

  // ---- Constant while the block exists.

  BlockId id;
  uint64_t address = 0;
  uint32_t chunks = 0;

  // ---- Guarded by BlockTable::mu.

  BlockState state = BlockState::kFree;
  uint32_t generation = 0;  // counts hand-outs
  uint64_t requested_bytes = 0;
  uint64_t handed_out_at = 0;  // launch index at hand-out, for stripping the longest unused first
  uint64_t freed_at = 0;       // order of frees, for stripping the oldest first
  CUstream owner = nullptr;    // allocation stream, kept from use to use: it decides who may reuse the block
  uint32_t pins = 0;           // launches that need it where it is
  uint32_t held_reasons = 0;   // bit per HoldReason; not zero: does not leave
  std::array<uint32_t, kHoldReasons> holds{};  // how many holds of each reason are not ended
  bool freed = false;                          // freed while a transfer was under way
  bool mapping = false;                        // chunks are being mapped or unmapped outside the lock
  bool hidden = false;                         // audit: has its chunks and its bytes, but is not mapped now
  bool listed = false;                         // in the allocator's list of reusable addresses
  bool wanted = false;                         // an allocation waits for the end of its free
  std::vector<Stamp> recorded;                 // recordStream: what must complete before reuse and eviction
  std::vector<ChunkHandle> handles;
  std::vector<ChunkHome> homes;       // per chunk, while kSpilled and kFaulting
  std::vector<ChunkHome> copy_homes;  // per chunk, while kResident: a copy from before (core's CleanCopies)
  ContentHash content;                // of the bytes at either, when known; at copy_homes it always is
  bool content_known = false;
  CopyHabit habit;            // of this address: equal steps hand equal addresses out
  EvictJob* evict = nullptr;  // under way or draining
  FetchJob* fetch = nullptr;
  CUevent arrival = nullptr;   // kFaulting: everything has been enqueued, and is there once this completes
  uint32_t peers = 0;          // other devices, one bit each, that may touch what is mapped now
  bool prefetched = false;     // the fetch under way, or the last one, was on the plan's account
  absl::Status fetch_failure;  // why the last fetch was taken back, if it failed
  uint64_t launch_sets = 0;    // LaunchSets that name it, one bit each
  // Evictions in a row that failed, and when it may be tried again (nanoseconds of the system's steady clock).
  uint8_t failed_evictions = 0;
  int64_t evict_again_at = 0;
  // Neighbours in the table's list of the blocks of this state.
  Block* list_previous = nullptr;
  Block* list_next = nullptr;

  bool used_since_hand_out() const { return used.load(std::memory_order_relaxed); }
  bool holds_chunks() const { return !handles.empty(); }
  // All uses are over, the gate is closed, nobody inside and no pin taken. Under the lock.
  void ForgetUses() {
    many_streams.store(false);
    for (os::Atomic<uint64_t>& stamp : stamps) stamp.store(0, std::memory_order_relaxed);
    for (os::Atomic<uint8_t>& taker : stamp_owners) taker.store(0, std::memory_order_relaxed);
  }
  bool live() const { return !freed && state != BlockState::kFree && state != BlockState::kCached; }
};

class BlockTable {
 public:
  BlockTable(int device, AddressMap* addresses);
  ~BlockTable();

  // Guards states, transfers, claims and chunks of this device.
  mutable os::Mutex mu{os::LockRank::kResidency};
  // Signalled when a state, the chunks or the queue of claims has changed.
  os::CondVar changed;

  // The block with that id, which must be of this device. Any thread, no lock: records are never deleted, though one may
  // serve another address once its own is given up (docs/threading.md, Records of blocks).
  Block& at(BlockId id) const {
    return pages_[id.index() / kPageBlocks].load(std::memory_order_acquire)[id.index() % kPageBlocks];
  }

  // A new block at that address, kFree, entered into the address map.
  Block* CreateLocked(uint64_t address, uint32_t chunks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes a kFree block without chunks out of the address map; its id may be given to another.
  void DestroyLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // The table's block that holds the address; null when none does. Only under the lock is it certain that the record is
  // still that address's.
  Block* FindLocked(uint64_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Counts one hold more, or one less. The block counts as used: whoever needs the hold may write it unseen.
  void AddHoldLocked(Block* block, HoldReason reason, uint64_t launches) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void EndHoldLocked(Block* block, HoldReason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The block has become live; has been freed, with its holds forgotten before.
  void NoteHandedOutLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void NoteFreedLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The block is freed: none of its holds counts any more.
  void ForgetHoldsLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Changes the state; aborts with both states and the block on an illegal move. Opens or closes the gate.
  void MoveLocked(Block* block, BlockState to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Closes the gate of a block that stays in its state, for a strip, and opens it again.
  void CloseGateLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { block->gate.store(Gate::kClosed); }
  void RestoreGateLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    block->gate.store(GateOf(*block));
  }

  // Blocks of that state, the one that has been in it longest first. `visit` may change the state of its block alone.
  template <typename Visitor>
  void ForEachLocked(BlockState state, Visitor visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    for (Block* block = lists_[static_cast<int>(state)].first; block != nullptr;) {
      Block* const next = block->list_next;
      visit(block);
      block = next;
    }
  }
  // Live blocks, by state. As above.
  template <typename Visitor>
  void ForEachLiveLocked(Visitor visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    for (const BlockState state : {BlockState::kEmpty, BlockState::kResident, BlockState::kEvicting,
                                   BlockState::kSpilled, BlockState::kFaulting, BlockState::kLost}) {
      ForEachLocked(state, [&](Block* block) {
        if (!block->freed) visit(block);
      });
    }
  }
  // All blocks that exist. Grows with the history of the job: for tests and checks.
  template <typename Visitor>
  void ForEachLocked(Visitor visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    for (int state = 0; state < kBlockStates; ++state) ForEachLocked(static_cast<BlockState>(state), visit);
  }
  size_t CountLocked(BlockState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return lists_[static_cast<int>(state)].count;
  }
  uint64_t ChunksLocked(BlockState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return lists_[static_cast<int>(state)].chunks;
  }
  // Blocks that have been in that state longest; null when there is none.
  Block* OldestLocked(BlockState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return lists_[static_cast<int>(state)].first;
  }
  // Of live blocks with a hold.
  uint64_t held_chunks_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return held_chunks_; }

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
  uint32_t LargestLeaverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return leaver_sizes_.Largest(); }

  // How often each legal move was made, for tests.
  uint64_t MovesLocked(BlockState from, BlockState to) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return moves_[static_cast<int>(from)][static_cast<int>(to)];
  }
  // Aborts unless every block's fields agree with its state.
  void CheckInvariantsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

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

// Stamps `block` as used by launch `number` of `stream`. Lock-free; inside a gate slot or under a pin. `thread`:
// GateSlots::NumberOf the calling thread's slot; 0 when it has none.
void StampBlockAnew(const StreamClock& clock, Block* block, Stamp stamp, uint8_t thread);
inline void StampBlock(const StreamClock& clock, Block* block, Stamp stamp, uint8_t thread) {
  for (size_t i = 0; thread != 0 && i < Block::kStamps; ++i) {
    const uint8_t owner = block->stamp_owners[i].load(std::memory_order_relaxed);
    if (owner == 0) break;
    if (owner != thread) continue;
    const Stamp old = Stamp::Unpack(block->stamps[i].load(std::memory_order_relaxed));
    if (old.stream != stamp.stream) continue;
    if (old.number < stamp.number) block->stamps[i].store(stamp.Packed(), std::memory_order_relaxed);
    return;
  }
  StampBlockAnew(clock, block, stamp, thread);
}
void StampBlock(const StreamClock& clock, Block* block, Stamp stamp);
// The stamps and recorded streams that the GPU has not completed yet. The gate must be closed and no thread inside.
std::vector<Stamp> UncompletedUses(const StreamClock& clock, Block* block);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_BLOCK_TABLE_H_
