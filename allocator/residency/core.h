// Core: what the parts of one device's residency share. It owns the table of blocks (with the lock), the clock, the
// gate slots, chunks, addresses and counters; it has no behaviour but bookkeeping. Who may do what is in
// docs/threading.md.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_CORE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_CORE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/memory/block_allocator.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/gpu_budget.h"
#include "allocator/memory/va_space.h"
#include "allocator/residency/block_table.h"
#include "allocator/residency/clean_copies.h"
#include "allocator/residency/device_error.h"
#include "allocator/residency/device_hash.h"
#include "allocator/residency/gate_slots.h"
#include "allocator/residency/lane_meter.h"
#include "allocator/residency/leave_permission.h"
#include "allocator/residency/plan_pace.h"
#include "allocator/residency/refusals.h"
#include "allocator/residency/residency_options.h"
#include "allocator/residency/stream_clock.h"
#include "allocator/residency/test_points.h"
#include "allocator/residency/write_sampler.h"
#include "allocator/tier/spill_room.h"
#include "io/os/atomic.h"
#include "io/os/wait.h"
#include "policy/trace/units.h"

namespace spillway::allocator {

// Written by any thread, read by Stats: plain sums.
struct Counters {
  std::atomic<uint64_t> host_spilled_bytes{0}, disk_spilled_bytes{0};
  std::atomic<uint64_t> host_fetched_bytes{0}, disk_fetched_bytes{0};
  std::atomic<uint64_t> prefetched_bytes{0}, prefetch_in_time_bytes{0};
  std::atomic<uint64_t> slow_launches{0}, evictions{0}, evictions_cancelled{0}, faults{0};
  std::atomic<uint64_t> prefetches{0}, prefetches_cancelled{0};
  std::atomic<uint64_t> clean_drops{0}, clean_drop_bytes{0}, changed_copies{0}, early_copies{0};
  std::atomic<uint64_t> stall_room_nanos{0}, stall_disk_nanos{0}, held_back_nanos{0};
  std::atomic<uint64_t> lost_room_nanos{0}, lost_read_nanos{0}, lost_run_ahead_nanos{0};
  std::atomic<uint64_t> in_time_bytes{0};
};

// How often each way of serving an allocation and each phase of a cancelled eviction was taken, for tests.
enum class AllocationPath : int { kCachedSameStream, kKeptAddress, kNewAddress, kCount };
enum class Lane : int { kHostOut, kDiskOut, kHostIn, kDiskIn, kCount };
enum class ChunkPath : int { kFreeChunks, kCreated, kStripped, kEvicted, kCount };

struct Core {
  Core(const ResidencyOptions& residency_options, const ResidencyParts& residency_parts)
      : options(residency_options),
        parts(residency_parts),
        chunk_bytes(residency_parts.addresses->chunk_bytes()),
        own_room(residency_parts.room != nullptr
                     ? nullptr
                     : std::make_unique<SpillRoom>(residency_parts.host, residency_parts.disk)),
        room(residency_parts.room != nullptr ? residency_parts.room : own_room.get()),
        refusals(residency_parts.refusals == nullptr ? &own_refusals : residency_parts.refusals),
        table(residency_options.device, residency_parts.addresses),
        waits(residency_parts.waits == nullptr ? &own_waits : residency_parts.waits),
        error([this] { Stop(); }),
        clock(residency_parts.driver, residency_parts.context, &error),
        hash(residency_parts.driver, residency_parts.context, residency_options.device,
             residency_parts.hash_code),
        writes(residency_parts.driver, &hash, &table),
        space(residency_parts.addresses->device_base(residency_options.device),
              residency_parts.addresses->bytes_per_device(), chunk_bytes),
        clean(residency_parts.host, residency_parts.disk) {}

  // ---- Constant after construction.

  const ResidencyOptions options;
  const ResidencyParts parts;
  const uint64_t chunk_bytes;
  const std::unique_ptr<SpillRoom> own_room;  // of a device that shares its tiers with none
  SpillRoom* const room;  // what this device promises its blocks off the GPU is entered here
  Refusals own_refusals;  // of a device that is not told the process's
  Refusals* const refusals;

  // ---- Internally synchronised.

  BlockTable table;
  os::WaitList own_waits;     // of a device outside a process that reports waits
  os::WaitList* const waits;  // every wait of this device is entered here
  DeviceError error;          // the first after which nothing moves any more
  StreamClock clock;
  GateSlots gates;
  Counters counters;
  HashLoader hash;
  WriteSampler writes;
  std::array<LaneMeter, static_cast<int>(Lane::kCount)> lanes;
  PlanPace pace;                                // of the plan in force; replaced by PlanRunner::Set alone
  os::Atomic<policy::LaunchIndex> launches{0};  // launches let through; the next one's index
  // Stamp of launch i at i % size, packed: tells completed launch indices from stream numbers.
  static constexpr uint64_t kLaunchRing = 1 << 16;
  std::unique_ptr<os::Atomic<uint64_t>[]> launch_stamps { new os::Atomic<uint64_t>[ kLaunchRing ]() };
  // Set once something has been evicted: launching threads then record events and respect the run-ahead bound.
  os::Atomic<bool> pressure{false};
  os::Atomic<bool> evict{options.evict};              // false: nothing leaves the GPU any more
  os::Atomic<bool> map_at_once{options.map_at_once};  // blocks have memory from their allocation on
  os::Atomic<bool> closed{false};  // after Shutdown or in a forked child: everything passes through
  // Closed, or the device has an error: nothing moves any more, no wait goes on, launches go to the driver.
  os::Atomic<bool> stopped{false};

  // ---- Guarded by table.mu.

  ChunkPool chunks ABSL_GUARDED_BY(table.mu);
  BlockAllocator addresses ABSL_GUARDED_BY(table.mu);
  VaSpace space ABSL_GUARDED_BY(table.mu);
  GpuBudget budget ABSL_GUARDED_BY(table.mu);
  CleanCopies clean ABSL_GUARDED_BY(table.mu);
  uint64_t live_blocks ABSL_GUARDED_BY(table.mu) = 0;
  uint64_t live_chunks ABSL_GUARDED_BY(table.mu) = 0;
  uint64_t promised_chunks ABSL_GUARDED_BY(table.mu) = 0;  // of live_chunks: their block is still being found
  uint64_t promised_room_bytes ABSL_GUARDED_BY(table.mu) = 0;  // this device's part of room's promises
  uint64_t live_requested_bytes ABSL_GUARDED_BY(table.mu) = 0;
  uint64_t frees ABSL_GUARDED_BY(table.mu) = 0;
  int64_t create_failed_nanos ABSL_GUARDED_BY(table.mu) =
      0;  // last refused chunk, which lowered the target; 0: none
  std::vector<Block*> waiting_frees
      ABSL_GUARDED_BY(table.mu);  // freed, recorded on streams that are not done
  uint64_t peak_live_chunks ABSL_GUARDED_BY(table.mu) = 0;
  uint64_t peak_requested_bytes ABSL_GUARDED_BY(table.mu) = 0;  // of live blocks, at that peak
  bool audited_launch_runs ABSL_GUARDED_BY(table.mu) = false;   // no eviction may begin to map, copy or unmap
  uint64_t peak_device_bytes ABSL_GUARDED_BY(table.mu) = 0;
  uint64_t chunk_paths[static_cast<int>(ChunkPath::kCount)] ABSL_GUARDED_BY(table.mu) = {};
  uint64_t allocation_paths[static_cast<int>(AllocationPath::kCount)] ABSL_GUARDED_BY(table.mu) = {};

  os::Atomic<int64_t> lost_until{0};  // up to when lost time has been counted; TakeLost alone

  // Every wait ends. Any thread, whatever locks it holds; the device's thread wakes those who have just begun to wait.
  void Stop() {
    stopped.store(true);
    table.changed.NotifyAll();
  }
  // Why it has stopped.
  absl::Status StopStatus() const {
    return error.any() ? error.status(*parts.driver) : absl::CancelledError("Spillway has shut down");
  }
  // One step of a wait for something that the table's lock guards: returns OK when it should be looked at again, else why
  // the wait is to end.
  absl::Status AwaitChangeLocked(const os::Wait& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    if (stopped.load()) return StopStatus();
    if (absl::Status status = wait.Check(); !status.ok()) return status;
    if (const std::chrono::nanoseconds left = wait.Left(); left < kLookAgain) {
      table.changed.WaitFor(&table.mu, left);
    } else {
      table.changed.WaitRechecking(&table.mu, kLookAgain);
    }
    return absl::OkStatus();
  }
  static constexpr std::chrono::milliseconds kLookAgain{100};

  LaneMeter& lane(Lane which) { return lanes[static_cast<int>(which)]; }
  // Of the time since `start` (nanoseconds of the system's steady clock), what the GPU has spent with nothing to do and
  // nobody has counted yet: several may wait at the same time. Counts it. Any thread.
  int64_t LostSince(int64_t start, int64_t now) {
    if (clock.UncompletedLaunches() > 0) return 0;
    return TakeLost(std::max(start, clock.LastCompletedAt()), now);
  }
  int64_t TakeLost(int64_t start, int64_t now) {
    int64_t counted = lost_until.load();
    do {
      start = std::max(start, counted);
      if (start >= now) return 0;
    } while (!lost_until.compare_exchange_weak(counted, now));
    return now - start;
  }
  // Whether nobody outside wants the block to stay.
  bool MayLeave(const Block& block) const {
    return parts.permission == nullptr || parts.permission->MayLeave(block.id);
  }
  // Bytes of chunk `index` of a block that carry something: whole chunks but for the tail.
  uint32_t BytesOfChunk(const Block& block, size_t index) const {
    const uint64_t start = index * chunk_bytes;
    const uint64_t end = (block.requested_bytes + 4095) / 4096 * 4096;
    return static_cast<uint32_t>(std::min(chunk_bytes, end - start));
  }
  // Bytes of the block that are copied when it leaves: a multiple of a page.
  static uint64_t BytesOfCopy(const Block& block) { return (block.requested_bytes + 4095) / 4096 * 4096; }
  // Enters the block into the list of reusable addresses.
  void ListLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    block->listed = true;
    addresses.Add(block->owner, block->chunks, block->address, block->id);
  }
  // A free that must wait for a transfer: the address may be promised already, the block not, so that equal steps get
  // equal addresses, which prediction wants. A block that recordStream keeps is not promised: nobody should wait for
  // another stream's work in an allocation.
  void BeginFreeLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    block->freed = true;
    if (block->recorded.empty()) ListLocked(block);
  }
  // The transfer has ended, and the block is kCached or kFree.
  void FinishFreeLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    block->freed = false;
    OfferLocked(block);
  }
  // A freed block, kCached or kFree, may be handed out again: at once, or when its recorded streams are done.
  void OfferLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    if (block->state == BlockState::kCached && !block->recorded.empty()) {
      waiting_frees.push_back(block);
      return;
    }
    block->recorded.clear();
    if (!block->listed && !block->wanted) ListLocked(block);
    GiveUpOldAddressesLocked();
  }
  // Kept addresses that nobody has taken for long are free space again: what is kept follows what is live, not what has
  // ever been allocated.
  void GiveUpOldAddressesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    const size_t kept = table.CountLocked(BlockState::kFree);
    if (kept <= options.kept_addresses) return;
    const size_t most = options.kept_addresses + 4 * live_blocks;
    for (size_t i = most; i < std::min(kept, most + 2); ++i) {
      if (!GiveUpAddressLocked(table.OldestLocked(BlockState::kFree))) return;
    }
  }
  // A kFree block's address goes back to the space of addresses, its record to the table. False when somebody still has
  // to do with it.
  bool GiveUpAddressLocked(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    const bool busy =
        block->evict != nullptr || block->mapping || block->pins > 0 || block->wanted || block->freed;
    if (busy && !SPILLWAY_MUTANT(kReuseRecordEarly)) return false;
    if (block->listed) addresses.Remove(block->owner, block->chunks, block->address);
    block->listed = false;
    space.Free(block->address, block->chunks);
    table.DestroyLocked(block);
    return true;
  }
  // After a chunk was refused: what the budget allows is tried again, for memory may have come back.
  void RestoreTargetLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    create_failed_nanos = 0;
    chunks.set_target(budget.ChunkTarget() / chunk_bytes);
    table.changed.NotifyAll();  // a claim may fit now
  }
  void NotePeakLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu) {
    peak_device_bytes = std::max(peak_device_bytes, chunks.held() * chunk_bytes + budget.others);
  }
};

// Maps the block's chunks. On failure nothing is mapped, or the device has an error.
absl::Status MapBlock(Core* core, const Block& block);
// Takes the block's mapping away, whose uses are over. A failure leaves it in an unknown state: the device's error.
absl::Status UnmapBlock(Core* core, const Block& block);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_CORE_H_
