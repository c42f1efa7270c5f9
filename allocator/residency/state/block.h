// Block: the record of one block, grouped by its writers; its states, and what a launching thread may do with
// it. A launching thread reads the gate without a lock; everything else is guarded by BlockTable::mu. Nothing
// here fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/content_hash.h"
#include "allocator/driver/stream_ref.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/pin.h"
#include "allocator/residency/state/copy_backoff.h"
#include "allocator/residency/state/pause.h"
#include "allocator/tier/extent_home.h"
#include "io/os/atomic.h"

namespace spillway::allocator {

// The states of a block. Pins, dirtiness, tier and transfers are fields of the block, not states.
// docs/states.md draws the states and lists who may move a block on.
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

// The use that a launching thread may make of a block without taking the lock.
enum class Gate : uint8_t {
  kClosed,   // take the slow path
  kOpen,     // mapped and whole: launch, then record the use
  kIgnored,  // no live block: an integer that looks like an address, or a stale pointer
};

// The part of an eviction or decommit under way that all components may see, under the lock. The Evictor has
// the rest of the job (EvictJob).
struct EvictionState {
  bool decommit = false;   // nothing is copied: the block holds nothing worth keeping
  bool cancelled = false;  // the eviction was taken back
  bool committed = false;  // the eviction can no longer be taken back
  bool moving = false;     // may map, copy and unmap; audited launches wait for it
};

struct FetchJob;

struct alignas(64) Block {
  // Launching threads read and write this without the lock, inside a read-side section.
  struct GateSide {
    os::Atomic<Gate> state{
        Gate::kIgnored};                   // written under the lock; pairs with the load after Section::Enter
    os::Atomic<bool> many_streams{false};  // more uses than entries: all launches so far count
    // Named by a launch, or pinned for long, since the hand-out. This is a flag of its own and not a
    // comparison of `last_use`, because of two threads that write `last_use` at once the one with the lower
    // number may write last.
    os::Atomic<bool> used{false};
    // The thread (ReadSections::NumberOf) that owns each entry of `uses`. 0 means that neither this entry nor
    // any behind it has an owner. A thread takes an entry by an exchange. It alone writes the entry from then
    // on, so recording a use costs a plain store.
    static constexpr size_t kUses = 6;
    std::array<os::Atomic<uint8_t>, kUses> use_owners{};
    os::Atomic<uint64_t> last_use{0};  // index of about the last launch that named it, from 1; 0 = never
    os::Atomic<uint64_t> bytes{0};     // in whole chunks
    // The last uses by stream, as packed timeline values. They are written between the launch and
    // Section::Leave (or under a pin); the Evictor reads them after ReadSections::WaitForAll.
    std::array<os::Atomic<uint64_t>, kUses> uses{};
  };
  // ---- The rest is guarded by BlockTable::mu; each struct is named after its writer.

  // Written by the table itself, in MoveLocked and in the methods for long-term pins.
  struct TableSide {
    std::array<uint32_t, kPinReasons> long_pins{};  // long-term pins of each reason that have not ended
    Block* previous = nullptr;                      // neighbors in the list of the blocks of this state
    Block* next = nullptr;
    uint32_t moves = 0;  // counts changes of the state: shows a change to a thread that had released the lock
  };
  // Written by Allocations and FreeAddresses.
  struct AllocationSide {
    uint32_t generation = 0;  // counts hand-outs
    uint64_t requested_bytes = 0;
    uint64_t handed_out_at = 0;  // launch index at hand-out: the longest unused is decommitted first
    uint64_t freed_at = 0;       // order of frees: the oldest is decommitted first
    CUstream owner = nullptr;    // allocation stream, kept across lives: it decides who may reuse the block
    StreamIndex owner_index = kNoStream;  // index of that stream, also when it has been destroyed
    bool freed = false;                   // freed while a transfer was under way
    bool listed = false;                  // in the list of reusable addresses
    bool wanted = false;                  // an allocation waits for the end of its free
    // recordStream: the values that must complete before reuse and eviction. Renewed when the block is freed.
    std::vector<TimelineValue> recorded;
  };
  // Written by the component that maps or unmaps the block: the thread of a claim, the Evictor, the Faulter,
  // or audit mode.
  struct MappingSide {
    std::vector<ChunkHandle> handles;
    bool mapping = false;               // chunks are being mapped or unmapped outside the lock
    bool unmapped = false;              // by the audit: the block keeps its chunks and bytes
    uint32_t peers = 0;                 // other devices, one bit each, that may use the present mapping
    std::vector<PinnedBuffer> reached;  // mapped behind `handles`: the last extents, in host memory (Reach)
    // The block's homes, all of them in host memory, are mapped (SoftBlocks). The block is kSpilled, or it is
    // kFaulting and its fetch has not mapped its chunks yet.
    bool soft = false;
    bool soft_ends = false;  // `soft` is to end
  };
  // Written by CleanCopies, and by the transfers that fill and empty these.
  struct CopiesSide {
    std::vector<ExtentHome> homes;       // per extent, while kSpilled and kFaulting
    std::vector<ExtentHome> copy_homes;  // per extent, while kResident: an earlier copy
    ContentHash content;                 // hash of the bytes at either; always known at copy_homes
    bool content_known = false;
    bool copy_kept = false;  // the bytes at `homes` stay as a clean copy when the block has come back
    // Belongs to the address, since equal iterations hand out equal addresses.
    CopyBackoff backoff;
    bool written_unseen = false;  // written on its way off the GPU, once: later blocks at the address stay
  };
  // Written by the Evictor.
  struct EvictionSide {
    EvictionState* job = nullptr;  // under way or draining
    int64_t spilled_at = 0;        // end of the last eviction (nanoseconds of the system's steady clock)
    bool clean = false;            // the last eviction copied nothing: the earlier copy was still good
    // Evictions that failed in a row, the time of the last failure, and the time from which it may be tried
    // again (nanoseconds of the system's steady clock).
    uint8_t failures = 0;
    int64_t failed_at = 0;
    int64_t again_at = 0;
  };
  // Written by the Faulter.
  struct FetchSide {
    FetchJob* job = nullptr;
    CUevent arrival = nullptr;  // kFaulting: everything has been enqueued, and is there once this completes
    bool prefetched = false;    // the present or last fetch was a prefetch
    absl::Status failure;       // why the last fetch was taken back, if it failed
    int64_t again_at = 0;       // when the plan may try it again (nanoseconds of the system's steady clock)
  };

  // Written by the table, in PauseLocked; the region by Allocations.
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

  BlockState state = BlockState::kFree;  // written by BlockTable::MoveLocked alone
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
  // Whether bytes that are away may be brought back ahead of need. `now` is of the system's steady clock.
  bool MayBeFetched(int64_t now) const {
    return state == BlockState::kSpilled && !memory.mapping && fetch.again_at < now;
  }
  bool used_since_hand_out() const { return gate.used.load(std::memory_order_relaxed); }
  bool has_chunks() const { return !memory.handles.empty() || !memory.reached.empty(); }
  // The number of chunks that must be, or are, the device's.
  uint32_t device_chunks() const { return chunks - static_cast<uint32_t>(memory.reached.size()); }
  // Forgets the recorded uses. The caller has the lock, and has made sure that all uses are over, the gate is
  // closed, no thread is inside a section, and there is no pin.
  void ForgetUses() {
    gate.many_streams.store(false);
    for (os::Atomic<uint64_t>& value : gate.uses) value.store(0, std::memory_order_relaxed);
    for (os::Atomic<uint8_t>& taker : gate.use_owners) taker.store(0, std::memory_order_relaxed);
  }
  bool live() const {
    return !allocation.freed && state != BlockState::kFree && state != BlockState::kCached;
  }
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_BLOCK_H_
