// ResidencyOptions, ResidencyParts, ResidencyStats: the inputs that an owner gives a Residency, and the
// metrics that it returns. The options are plain values, which integration/engine reads from the settings.
// The interfaces are those through which the residency asks and reports; the engine and the hooks implement
// them. Each method documents the thread that calls it; none can fail.

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
#include "policy/model/machine.h"
#include "policy/model/units.h"

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
  bool evict = true;                  // false: SPILLWAY_ON_FULL=error, observe mode, or a missing hook
  bool map_at_once = false;         // blocks have memory from their allocation on, as launches may go unseen
  uint64_t free_reserve_bytes = 0;  // background eviction keeps this much free; 0 = 1/16 of the budget
  int64_t idle_nanos = 300'000'000'000;  // bytes spilled for so long leave a host tier that is nearly full
  uint64_t run_ahead_bytes = 0;  // bytes used by uncompleted launches once spilling began; 0 = a quarter
  bool measure_link = false;     // the link is measured when something leaves the GPU for the first time
  int64_t link_apart_nanos = 10'000'000'000;  // least time between two measurements of the link
  // Blocks that leave for host memory stay mapped there if kernels can reach it (SoftBlocks).
  bool soft_evictions = false;
  bool verify_arrivals = false;  // SPILLWAY_VERIFY: bytes that come back are compared with those that left
  bool verify_always = false;    // verify each eviction, not only first ones and those whose copy is kept
  uint32_t largest_handle = ChunkPool::kLargestHandle;  // largest handle, in chunks; a power of two
  size_t kept_addresses = 4096;  // of freed blocks; four more for each live block; at least 1
};

// The gate's reports about each launch that it lets through. Implemented by the recorder
// (integration/prediction).
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // The launch with this index has been enqueued. Indices of one device count up from 0 without gaps, but two
  // threads may report theirs in either order. `tag` names the launched function, or the kind of copy. Called
  // on the launching thread, without a lock; must not block, and must not allocate in the steady state.
  virtual void OnLaunch(int device, policy::LaunchIndex index, uint64_t tag, const AccessSet& set) = 0;
  // A block was handed out or freed, between the launches around it. `bytes` is in whole chunks;
  // `copied_bytes` of them are copied when the block moves.
  virtual void OnAllocate(int device, BlockId block, uint64_t bytes, uint64_t copied_bytes) = 0;
  virtual void OnFree(int device, BlockId block) = 0;

  // Whether the next launch is to be reported by the two calls below, so that launches are measured on the
  // GPU. Asked when each launch enters the gate.
  bool wants_marks() const { return wants_marks_.load(std::memory_order_relaxed); }
  // A launch has entered the gate. Nothing of ours has been enqueued for it, and it has waited for nothing.
  // No stream is under capture. Otherwise like OnLaunch.
  virtual void OnEnter(const StreamRef& stream) {}
  // The launch's waits for its blocks are enqueued on its stream. The real launch comes next, unless it fails
  // or is repeated. May be called inside a read-side section. No stream is under capture. Otherwise like
  // OnLaunch.
  virtual void OnReady(const StreamRef& stream) {}
  // A stream is about to be destroyed or captured: measurements that have begun on it must be dropped. Any
  // thread.
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
  BlockId block;            // the first block that was lacking; invalid when not known
  uint64_t tag = 0;         // of the launch; 0: not known
  int64_t began = 0;        // nanoseconds of the system's steady clock
  uint64_t nanos = 0;       // duration
  uint64_t lost_nanos = 0;  // part of it in which the GPU had nothing to do
};

// Reports about the motion of blocks: each move of bytes that has ended, each wait of a launch or of the GPU
// for a block, and each launch that reached host memory. A launch whose blocks are all resident is not
// reported, unless the GPU ran out of work because of the bound on launches under way. Implemented by the log
// of a report (integration/report).
class MotionObserver {
 public:
  virtual ~MotionObserver() = default;
  // Called on the device's thread or a launching one, with the table's lock or without. Must not wait for
  // anything but a lock of a higher rank, and must not allocate.
  virtual void OnMove(const EndedMove& move) = 0;
  virtual void OnStall(const Stall& stall) = 0;
  // A launch with that tag was let through while so many bytes of its blocks were in host memory, in whole
  // chunks.
  virtual void OnReach(uint64_t tag, uint64_t bytes) = 0;
};

// Whether a module outside the residency lets a block leave the GPU at all (SPILLWAY_TRUST).
class LeavePermission {
 public:
  virtual ~LeavePermission() = default;
  // Called with the table's lock; must not block. The answer may change at any time.
  virtual bool MayLeave(BlockId block) const = 0;
};

// The way in which a kernel uses its operands, as far as its name shows. It decides which blocks of a launch
// that does not fit the GPU are reached in host memory (Reach).
enum class KernelPasses : uint8_t {
  kOne,     // visits each operand about once: elementwise, copies, reductions, optimizers
  kMany,    // reads operands many times, writes results once: matrix products, convolutions, attention
  kAtomic,  // updates its result in place, in any order: scatter, index_add, an embedding's backward pass
};

// Start of a block, and its size as the job requested it.
struct BlockRange {
  CUdeviceptr base = 0;
  uint64_t bytes = 0;
};

// A live block, as the message of a refusal names it.
struct LargeBlock {
  uint64_t requested_bytes = 0;
  bool resident = false;                           // its bytes are on the GPU, at least in part
  std::optional<policy::LaunchIndex> last_launch;  // index of about the last launch; none: never used
  BlockId id = {};
};

// A live block with its size, in whole chunks.
struct BlockBytes {
  BlockId id;
  uint64_t bytes = 0;
};

// A launch, copy or memset that ended in a fault.
struct AuditedLaunch {
  int device = 0;
  uint64_t number = 0;  // of the audited launches of this device, from 1
  uint64_t tag = 0;     // as given to Run
  CUresult result = CUDA_SUCCESS;
  std::vector<BlockRange> blocks;  // the blocks that it named
};

// Reports of audit mode. Called on launching threads without a lock, while the audited launch has its turn.
// Must not launch anything.
class AuditObserver {
 public:
  virtual ~AuditObserver() = default;
  // The launch accessed a block that it did not name (or is wrong by itself). Once per device, whose context
  // is lost.
  virtual void OnFault(const AuditedLaunch& launch) = 0;
  // Something that did not come through the gate failed before launch `number`. Once per device.
  virtual void OnEarlierFault(int device, uint64_t number, CUresult result) = 0;
  // The launch goes into a graph and cannot be waited for, so it is not audited.
  virtual void OnCaptured(int device, uint64_t tag) = 0;
  // The launch has been audited, without a fault so far. For the count.
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
  MotionObserver* motion = nullptr;             // records moves and stalls; null: none
  const LeavePermission* permission = nullptr;  // blocks that it refuses stay; null: all may leave
  // Advice for the user when the blocks of a launch, `blocks` of them, do not fit together: what the launch
  // is, and what would make it fit. Takes no lock. Null: none.
  std::function<std::string(uint64_t tag, size_t blocks)> launch_advice;
  AuditObserver* audit = nullptr;  // not null: audit mode, which reports its findings to it
  os::WaitList* waits = nullptr;   // list of waits; null: a list of its own, which is not reported
  // The name of a launch of that tag, for lines about waits. Takes no lock. Null: no name.
  std::function<std::string(uint64_t tag)> name_of_launch;
  std::function<KernelPasses(uint64_t tag)> passes_of_launch;  // takes no lock; null: kOne
  HashCode* hash_code = nullptr;  // the content hash for the device; null: every eviction writes
  GpuShare* share =
      nullptr;  // where jobs share the device: the share is 0 until it gives one; null: all is ours
  PauseGate* pause_gate =
      nullptr;  // keeps launches while the job is paused from outside; null: they are refused
  Refusals* refusals = nullptr;  // keeps the messages of refusals, the process's; null: this device's alone
};

// ---- Metrics.

// The facts for which a plan is made.
struct MachineStats {
  // Part of the budget that our chunks may have now; on a shared device, as soon as they need it.
  uint64_t chunk_target_bytes = 0;
  uint64_t pinned_bytes = 0;  // live blocks among them that must stay, in whole chunks
  // Bytes a second of each copy queue while it had work, as moving means. 0: not known yet.
  double host_out_rate = 0;
  double disk_out_rate = 0;
  double host_in_rate = 0;
  double disk_in_rate = 0;
  double disk_writes_bound =
      0;  // bytes a second that the write budget leaves when it is spent; 0: it is not spent
  // The rates of host memory while both directions of the link run; 0: the link was not measured.
  double host_out_both_rate = 0;
  double host_in_both_rate = 0;

  double BoundedDiskOutRate() const {
    if (disk_writes_bound == 0 || disk_out_rate == 0) return std::max(disk_writes_bound, disk_out_rate);
    return std::min(disk_writes_bound, disk_out_rate);
  }
};

// Metrics of one device, with units in their names: those of counters.def, and those from which reports make
// sentences. A snapshot: fields may be a few operations apart.
struct ResidencyStats : MachineStats {
#define GAUGE(name, ...) uint64_t name = 0;
#define COUNTER(name, ...) uint64_t name = 0;
#define SUM(name, ...) uint64_t name = 0;
#define SECONDS(name, ...) uint64_t name = 0;
#include "allocator/residency/state/counters.def"

  uint64_t driver_lacks_bytes = 0;  // part of the present budget that the driver does not have
  uint64_t least_budget_bytes = 0;  // with which every launch still fits, or all blocks where none may leave
  uint64_t own_limit_bytes = 0;     // the job's own limit (SetCap), where it is less than the budget; else 0
  uint64_t clean_copy_bytes = 0;    // clean copies in both tiers: given up when the capacity is needed
  // Rates of plain copies over the link by the last measurement; the number of measurements that ended, and
  // of those that were given up; the time during which one was under way.
  struct Link {
    policy::LinkRates alone, both;  // each direction alone, and both together
  };
  std::optional<Link> link;
  uint64_t link_measurements = 0;
  uint64_t link_measurements_dropped = 0;
  uint64_t link_measuring_nanos = 0;
  std::array<uint64_t, kPinReasons> pinned_bytes_by_reason{};  // index: PinReason
  uint64_t run_ahead_bytes =
      0;  // bound on the bytes that uncompleted launches touch, once spilling has begun
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_RESIDENCY_OPTIONS_H_
