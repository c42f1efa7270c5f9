// ResidencyOptions, ResidencyParts, ResidencyStats: what the owner of a Residency gives it, and the figures
// that he gets. The options are plain values, which integration/engine reads from the settings. The
// interfaces are those through which the residency asks and reports; the engine and the hooks implement them.
// Each method says on which thread it is called; none can fail.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_RESIDENCY_OPTIONS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_RESIDENCY_OPTIONS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/stream_ref.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/pin.h"
#include "allocator/residency/state/pause.h"
#include "io/os/atomic.h"
#include "policy/simulator/machine.h"
#include "policy/trace/units.h"

namespace spillway::io {
class SpillStore;
}
namespace spillway::os {
class WaitList;
}
namespace spillway::policy {
struct MigrationPlan;
class WriteFacts;
struct FormFacts;
}  // namespace spillway::policy

namespace spillway::allocator {

class AddressMap;
class GpuShare;
class HashCode;
class HostPool;
class Refusals;
class SharedCapacity;

struct ResidencyOptions {
  int device = 0;                     // ordinal
  uint64_t budget_bytes = 0;          // SPILLWAY_GPU_MEMORY: our chunks and external memory
  uint64_t external_share_bytes = 0;  // of the budget; 0 = 2 %, at least 16 MiB
  uint64_t reserve_bytes = 0;         // of the device, beyond the budget: used before anything is refused
  uint64_t cap_bytes = UINT64_MAX;    // the application's own limit on the budget (SetCap)
  bool evict = true;                // false: SPILLWAY_ON_FULL=error, observe mode, or a hook that is missing
  bool map_at_once = false;         // blocks have memory from their allocation on: launches may go unseen
  uint64_t free_reserve_bytes = 0;  // background eviction keeps this much free; 0 = 1/16 of the budget
  int64_t idle_nanos = 300'000'000'000;  // spilled for so long, bytes leave a host tier that is nearly full
  uint64_t run_ahead_bytes = 0;  // bytes used by uncompleted launches once spilling began; 0 = a quarter
  bool measure_link = false;     // the link is measured when something leaves the GPU for the first time
  int64_t link_apart_nanos = 10'000'000'000;  // between two measurements of the link, at least
  // Blocks that leave for host memory which kernels can reach stay mapped there (SoftBlocks).
  bool soft_evictions = false;
  bool verify_always = false;  // each eviction, not the first ones of an address and now and then one
  uint32_t largest_handle = ChunkPool::kLargestHandle;  // in chunks, created at once; a power of two
  size_t kept_addresses = 4096;  // of freed blocks; four more for each live block. At least 1
};

// What the gate reports of each launch that it lets through. Implemented by the recorder
// (integration/prediction).
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // The launch with this index has been enqueued. Indices of one device count up from 0 without gaps, but two
  // threads may report theirs in either order. `tag` names what was launched (function, or kind of copy). On
  // the launching thread, without a lock: must not block, and must not allocate in the steady state.
  virtual void OnLaunch(int device, policy::LaunchIndex index, uint64_t tag, const AccessSet& set) = 0;
  // A block was handed out or freed, between the launches around it. `bytes` in whole chunks; `copied_bytes`
  // of them are copied when it moves.
  virtual void OnAllocate(int device, BlockId block, uint64_t bytes, uint64_t copied_bytes) = 0;
  virtual void OnFree(int device, BlockId block) = 0;

  // Whether the next launch is to be reported by the two calls below, to measure launches on the GPU. Asked
  // when each launch enters the gate.
  bool wants_marks() const { return wants_marks_.load(std::memory_order_relaxed); }
  // A launch has entered the gate; nothing of ours has been enqueued for it and it has waited for nothing. No
  // stream is under capture. As OnLaunch.
  virtual void OnEnter(const StreamRef& stream) {}
  // Waits for what the launch needs are enqueued on its stream. The real launch comes next, unless it fails
  // or is repeated. May be called inside a read-side section. No stream is under capture. As OnLaunch.
  virtual void OnReady(const StreamRef& stream) {}
  // A stream is about to be destroyed or captured: measurements begun on it are to be dropped. Any thread.
  virtual void OnInterrupt() {}

 protected:
  os::Atomic<bool> wants_marks_{false};  // stored by the observer, at any time
};

enum class MoveKind : uint8_t { kGpuToHost, kHostToGpu, kGpuToDisk, kDiskToGpu, kHostToDisk, kCount };

// Bytes of one block that went to or came from one tier. Their sums are those of Counters.
struct EndedMove {
  MoveKind kind = MoveKind::kGpuToHost;
  BlockId block;
  uint64_t bytes = 0;
  int64_t began = 0;  // nanoseconds of the system's steady clock
  int64_t ended = 0;
};

enum class StallCause : uint8_t {
  kChunks,      // a launching thread waited for GPU memory
  kArrival,     // a launching thread waited for bytes to come back
  kGpuArrival,  // the GPU waited for bytes to arrive, no thread did
  kRunAhead,  // a launching thread waited for the bound on launches under way, and the GPU had nothing to do
  kCount
};

struct Stall {
  StallCause cause = StallCause::kChunks;
  BlockId block;            // the first that was lacking; not valid: not known
  uint64_t tag = 0;         // of the launch; 0: not known
  int64_t began = 0;        // nanoseconds of the system's steady clock
  uint64_t nanos = 0;       // how long
  uint64_t lost_nanos = 0;  // of it, the GPU had nothing to do
};

// What is reported of the motion of blocks, where a report is wanted: each move of bytes that has ended, and
// each wait that a launch, or the GPU, had for one. Nothing is reported of a launch whose blocks are all
// resident, unless the GPU ran out of work over the bound on launches under way. Implemented by the log of a
// report (integration/report).
class MotionObserver {
 public:
  virtual ~MotionObserver() = default;
  // On the device's thread or a launching one, with the table's lock or without: must not wait for anything
  // but a lock of a higher rank, and must not allocate.
  virtual void OnMove(const EndedMove& move) = 0;
  virtual void OnStall(const Stall& stall) = 0;
};

// Whether a block may leave the GPU at all, in the opinion of a module outside the residency
// (SPILLWAY_TRUST).
class LeavePermission {
 public:
  virtual ~LeavePermission() = default;
  // Called with the table's lock: must not block. The answer may change at any time.
  virtual bool MayLeave(BlockId block) const = 0;
};

// What a kernel does with what it names, as far as its name says: it decides what of a launch that does not fit the GPU
// is reached in host memory (Reach).
enum class KernelPasses : uint8_t {
  kOne,     // goes over each operand about once: elementwise, copies, reductions, optimizers
  kMany,    // reads operands many times, writes results once: matrix products, convolutions, attention
  kAtomic,  // updates its result in place, in any order: scatter, index_add, an embedding's backward pass
};

// Start of a block, and its size as the job asked for it.
struct BlockRange {
  CUdeviceptr base = 0;
  uint64_t bytes = 0;
};

// A live block, as the words of a refusal name it.
struct LargeBlock {
  uint64_t requested_bytes = 0;
  bool resident = false;                           // its bytes are on the GPU, at least in part
  std::optional<policy::LaunchIndex> last_launch;  // about the last one that named it; none: never used
  BlockId id = {};
};

// A live block with its size, in whole chunks.
struct BlockBytes {
  BlockId id;
  uint64_t bytes = 0;
};

// A launch, or a copy or memset, that ended in a fault.
struct AuditedLaunch {
  int device = 0;
  uint64_t number = 0;  // of the audited launches of this device, from 1
  uint64_t tag = 0;     // as given to Run
  CUresult result = CUDA_SUCCESS;
  std::vector<BlockRange> blocks;  // what it named
};

// Reports of audit mode. Called on launching threads without a lock, while the audited launch has its turn:
// must not launch anything.
class AuditObserver {
 public:
  virtual ~AuditObserver() = default;
  // The launch touched what it did not name (or is wrong by itself). Once per device: its context is lost.
  virtual void OnFault(const AuditedLaunch& launch) = 0;
  // Something that did not come through the gate failed before launch `number`. Once per device.
  virtual void OnEarlierFault(int device, uint64_t number, CUresult result) = 0;
  // The launch goes into a graph and cannot be waited for: it is not audited.
  virtual void OnCaptured(int device, uint64_t tag) = 0;
  // The launch has been audited, without a fault so far: for the count.
  virtual void OnPassed(int device) = 0;
};

struct ResidencyParts {
  const CudaDriver* driver = nullptr;
  CUcontext context = nullptr;
  AddressMap* addresses = nullptr;
  HostPool* host = nullptr;        // pinned memory shared by the process's devices: host tier and staging
  io::SpillStore* disk = nullptr;  // null: no disk tier
  SharedCapacity* capacity =
      nullptr;  // account of `host` and `disk`, shared by devices; null: this one's alone
  LaunchObserver* observer = nullptr;           // the recorder; null: none
  MotionObserver* motion = nullptr;             // who records moves and stalls; null: nobody
  const LeavePermission* permission = nullptr;  // blocks that it refuses stay; null: all may leave
  // Advice for the user when the blocks of a launch, so many, do not fit together: what it is, and what would
  // make it fit. No lock is taken. Null: none.
  std::function<std::string(uint64_t tag, size_t blocks)> launch_advice;
  AuditObserver* audit = nullptr;  // not null: audit mode, which reports to it what it finds
  os::WaitList* waits = nullptr;   // where waits are entered; null: a list of its own, which is not reported
  // The name of a launch of that tag, for lines about waits. No lock is taken. Null: no name.
  std::function<std::string(uint64_t tag)> name_of_launch;
  std::function<KernelPasses(uint64_t tag)> passes_of_launch;  // likewise; null: kOne
  HashCode* hash_code = nullptr;  // the content hash for the device; null: every eviction writes
  GpuShare* share =
      nullptr;  // where jobs share the device: the share is 0 until it gives one; null: all is ours
  PauseGate* pause_gate =
      nullptr;  // keeps launches while the job is paused from outside; null: they are refused
  Refusals* refusals = nullptr;  // where the words of refusals go, the process's; null: this device's alone
};

// ---- Figures.

// What a plan is made for.
struct MachineFigures {
  uint64_t chunk_target_bytes = 0;  // of the budget, what our chunks may hold now
  uint64_t pinned_bytes = 0;        // of it, live blocks that must stay: in whole chunks
  // Bytes a second of each copy queue while it had anything to do: moving means. 0: not known yet.
  double host_out_rate = 0;
  double disk_out_rate = 0;
  double host_in_rate = 0;
  double disk_in_rate = 0;
  double disk_writes_bound =
      0;  // what the write budget leaves, once it is spent: bytes a second; 0: it is not
  // Of these, those of host memory while both directions of the link run; 0: the link was not measured.
  double host_out_both_rate = 0;
  double host_in_both_rate = 0;

  double BoundedDiskOutRate() const {
    if (disk_writes_bound == 0 || disk_out_rate == 0) return std::max(disk_writes_bound, disk_out_rate);
    return std::min(disk_writes_bound, disk_out_rate);
  }
};

// Counters of one device, with units in the names. A snapshot: fields may be a few operations apart.
struct ResidencyStats : MachineFigures {
  uint64_t budget_bytes = 0;  // of the settings, and the most that was lent of the reserve: bounds every peak
  uint64_t budget_in_force_bytes = 0;  // now: less while the driver, or the job's own limit, has less
  uint64_t driver_lacks_bytes = 0;     // of what the budget allows now
  uint64_t least_budget_bytes = 0;  // with which every launch still fits, or all blocks where none may leave
  uint64_t own_limit_bytes = 0;     // the job's own (SetCap), where it is less than the budget; else 0
  uint64_t idle_pauses = 0;         // times that the job gave its share up
  uint64_t share_bytes = 0;         // of a device that jobs share, what this one has; 0: it is not shared
  uint64_t live_bytes = 0;          // blocks handed out and not freed, in whole chunks
  uint64_t requested_bytes = 0;     // the same as asked for
  uint64_t resident_bytes = 0;      // live blocks with chunks
  uint64_t cached_bytes = 0;        // chunks of freed blocks kept for the next
  uint64_t chunk_bytes = 0;         // all chunks that we have
  uint64_t peak_chunk_bytes = 0;
  uint64_t peak_live_bytes = 0;       // most of live_bytes, and
  uint64_t peak_requested_bytes = 0;  // requested_bytes when it was reached: the rest is rounding
  uint64_t peak_device_bytes = 0;     // most of (our chunks + external memory)
  uint64_t external_bytes = 0;        // external memory now
  uint64_t host_tier_bytes = 0;       // spilled bytes in host memory now
  uint64_t disk_tier_bytes = 0;       // spilled bytes in spill files now
  uint64_t clean_copy_bytes = 0;      // in both, clean copies: given up when the capacity is needed

  uint64_t spilled_bytes = 0;  // moved out, all tiers, since start
  uint64_t host_spilled_bytes = 0;
  uint64_t disk_spilled_bytes = 0;
  uint64_t fetched_bytes = 0;  // moved in, all tiers
  uint64_t host_fetched_bytes = 0;
  uint64_t disk_fetched_bytes = 0;
  uint64_t prefetched_bytes = 0;        // of fetched: on the plan's account
  uint64_t prefetch_in_time_bytes = 0;  // of fetched: arrived before their launch reached the gate

  uint64_t launches = 0;       // through the gate, with at least one block of ours
  uint64_t slow_launches = 0;  // of those, not everything was resident
  uint64_t evictions = 0;
  uint64_t evictions_cancelled = 0;
  uint64_t faults = 0;  // blocks brought in on demand
  uint64_t prefetches = 0;
  uint64_t prefetches_cancelled = 0;
  uint64_t clean_drops = 0;  // of evictions: the copy from before was the content still, nothing was moved
  uint64_t clean_drop_bytes = 0;    // what those would have moved
  uint64_t hash_mismatches = 0;     // a copy was kept, and the block had changed: written again
  uint64_t verified_evictions = 0;  // hashed again before the unmap, after the copy
  uint64_t unseen_writes = 0;       // of these: the block had been written, and no launch had named it
  uint64_t handles_remade = 0;      // of GPU memory, released to be created in other sizes
  uint64_t early_copies = 0;        // blocks copied out while they stayed on the GPU
  // Launches whose blocks did not fit the GPU together, and bytes of theirs in host memory, in whole chunks.
  uint64_t reached_launches = 0;
  uint64_t reached_bytes = 0;
  uint64_t reached_now_bytes = 0;  // of live blocks, in host memory while launches use them
  uint64_t soft_now_bytes = 0;     // of live blocks, spilled and mapped there
  uint64_t soft_evictions = 0;     // that left their blocks so
  uint64_t soft_writes = 0;        // blocks that were written there, as their hash has shown
  uint64_t stall_chunk_nanos = 0;  // launching threads waited for chunks
  uint64_t stall_disk_nanos = 0;   // for reads and their staging
  uint64_t throttled_nanos = 0;    // by the bound on uncompleted launches, mostly behind a GPU that had work
  // Of the time of the job, the part in which the GPU had nothing to do: a launch waited for chunks; for
  // bytes to come back (the launching thread for the disk, or the GPU for their arrival); for the bound on
  // uncompleted launches.
  uint64_t lost_chunk_nanos = 0;
  uint64_t lost_read_nanos = 0;
  uint64_t lost_run_ahead_nanos = 0;
  uint64_t in_time_bytes = 0;  // of fetched: nothing on the GPU had to wait for them
  // What plain copies over the link were measured to reach last; measurements that ended, and those that were
  // given up; time during which one was under way.
  struct Link {
    policy::LinkRates alone, both;  // each direction alone, and both together
  };
  std::optional<Link> link;
  uint64_t link_measurements = 0;
  uint64_t link_measurements_dropped = 0;
  uint64_t link_measuring_nanos = 0;
  std::array<uint64_t, kPinReasons> pinned_bytes_by_reason{};  // index: PinReason
  uint64_t largest_set_bytes = 0;
  uint64_t run_ahead_bytes =
      0;  // bound on the bytes that uncompleted launches touch, once spilling has begun
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_RESIDENCY_OPTIONS_H_
