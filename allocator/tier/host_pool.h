// HostPool: pinned host memory in buffers of one chunk's size, shared by all devices of the process. Most are
// host buffers: the host tier, in which the bytes of evicted extents stay. A few are staging buffers, through
// which bytes pass on their way to and from the disk. Evictions and faults have staging buffers of their own,
// so that neither starves the other.
//
// Processes of a node share what may be pinned (io::NodeShare). What is pinned stays until the process ends.
//
// Evictor and Faulter take and give buffers on the device threads, SharedCapacity makes the host tier grow on
// the thread of an allocation, engine/runtime creates and ends the pool. Memory is pinned a slab at a time,
// ahead of need, by a thread of the pool's own (`spill-pin`): Take never waits for the driver. Pinning fails
// when the system has no more memory; the host tier then stays as large as it is.

#ifndef SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_
#define SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/tier/host_handles.h"
#include "io/os/wait.h"
#include "io/store/node_share.h"

namespace spillway::allocator {

// What a buffer is for: the host tier, or staging for evictions or for faults. A buffer is given back to the
// use that it was taken for.
enum class HostUse : int { kStorage, kEvictStaging, kFaultStaging };

// A host buffer or a staging buffer, by its use.
struct PinnedBuffer {
  std::byte* data = nullptr;  // page aligned, pinned, buffer_bytes long
  // Of a host buffer that kernels can reach: may be mapped elsewhere besides.
  CUmemGenericAllocationHandle handle = 0;
};

class HostPool {
 public:
  struct Options {
    uint64_t buffer_bytes = 2 << 20;  // the chunk size
    uint64_t storage_bytes = 0;       // limit of the host tier, without staging; 0: no host tier
    int evict_staging_buffers = 4;    // at least 2 where there is a disk tier, else 0
    int fault_staging_buffers = 8;    // likewise
    uint64_t slab_bytes = 32 << 20;   // pinned at a time
    HostReach reach = {};             // with devices: host buffers are handles, which these can reach
    os::WaitList* waits = nullptr;    // the process's; null: one of the pool's own
    // What processes of the node share; null: nothing. From Create on only the pool uses it.
    io::NodeShare* share = nullptr;
    uint64_t shared_bytes = 0;  // what all that share may pin together, staging included
  };

  // Pins the staging buffers now and storage on demand. The driver's error when the staging buffers cannot be
  // pinned. `context` need not be current in any thread.
  static absl::StatusOr<std::unique_ptr<HostPool>> Create(const CudaDriver* driver, CUcontext context,
                                                          const Options& options);
  // Calls Shutdown. Leaves the memory in place: copies may still read it, and process exit frees it.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Appends up to `count` buffers to `buffers` and returns how many, in runs of ascending addresses that adjoin
  // where such are free. Never pins and never waits: it asks the
  // pinning thread for the storage that is missing. Any thread.
  size_t Take(HostUse use, size_t count, std::vector<PinnedBuffer>* buffers);
  // Gives `count` buffers that adjoin, from this one on, back for the next Take. Any thread.
  void Give(HostUse use, PinnedBuffer first, size_t count = 1);
  // While somebody reads a host buffer that its owner may give back meanwhile, it is not handed out again. One call
  // of each for each read, of one reader at a time. Any thread.
  void BeginRead(PinnedBuffer buffer);
  void EndRead(PinnedBuffer buffer);
  // Of a staging buffer that was taken and is never given back, since a disk may write to it at any time: the
  // use has one less from now on. Any thread.
  void Abandon(HostUse use);

  // Waits until storage_capacity_bytes() >= bytes. kResourceExhausted, with the reason, when the limit is lower,
  // when the system refuses memory, or when other processes hold the rest; kCancelled after Shutdown;
  // kDeadlineExceeded at the user's limit of waits. Any thread, no lock held.
  absl::Status GrowStorageTo(uint64_t bytes);

  // Where processes share: as GrowStorageTo, but nobody waits; what others leave is looked at, and pinned.
  void AskFor(uint64_t bytes);

  // Ends the pinning thread within 0.2 s, and leaves it behind when it is stuck in the driver. Any thread.
  void Shutdown();

  // Size of every buffer.
  uint64_t buffer_bytes() const;
  // Whether each host buffer has a handle.
  bool reachable() const;
  // The host tier's capacity: bytes that are pinned, taken or not. It only grows. Any thread, no lock.
  uint64_t storage_capacity_bytes() const;
  // The most that the capacity may become, as far as is known: Options::storage_bytes, or what was pinned when the
  // system refused more; and what other processes leave. Any thread, no lock.
  uint64_t storage_cap_bytes() const;
  // True while the pinning thread works on storage that Take or GrowStorageTo asked for; false while others of the
  // node hold it. No lock held.
  bool storage_growing() const;
  // Bytes of host buffers that are taken.
  uint64_t storage_in_use() const;
  // Buffers of this use that nobody has taken; storage that is not pinned yet counts.
  size_t Free(HostUse use) const;
  // Buffers of this use that exist or may exist, taken or not.
  size_t Limit(HostUse use) const;

 private:
  struct State;
  explicit HostPool(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;  // shared with the pinning thread, which may outlive the pool
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_
