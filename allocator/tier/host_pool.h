// HostPool: pinned host memory in buffers of one chunk's size, shared by all devices of the process. Most
// buffers are host buffers: the host tier, in which the bytes of evicted extents stay. A few are staging
// buffers, through which bytes pass on their way to and from the disk. Evictions and faults have staging
// buffers of their own, so that neither starves the other.
//
// Processes of a node share the memory that may be pinned (io::NodeShare). Pinned memory stays pinned until
// the process ends.
//
// Evictor and Faulter take and give buffers on the device threads, SharedCapacity lets the host tier grow on
// the thread of an allocation, and engine/runtime creates and ends the pool. A thread of the pool's own
// (`spill-pin`) pins memory a slab at a time, ahead of need, so Take never waits for the driver. Pinning
// fails when the system has no more memory; the host tier then keeps its size.

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

// The use of a buffer: the host tier, or staging for evictions or for faults. A buffer is given back to the
// use for which it was taken.
enum class HostUse : int { kStorage, kEvictStaging, kFaultStaging };

// A host buffer or a staging buffer, by its use.
struct PinnedBuffer {
  std::byte* data = nullptr;  // page aligned, pinned, buffer_bytes long
  // For a host buffer that kernels can reach: the handle, which may be mapped elsewhere besides.
  CUmemGenericAllocationHandle handle = 0;
};

class HostPool {
 public:
  struct Options {
    uint64_t buffer_bytes = 2 << 20;  // the chunk size
    uint64_t storage_bytes = 0;       // limit of the host tier, without staging; 0: no host tier
    int evict_staging_buffers = 4;    // at least 2 if there is a disk tier, else 0
    int fault_staging_buffers = 8;    // at least 2 if there is a disk tier, else 0
    uint64_t slab_bytes = 32 << 20;   // pinned at a time
    HostReach reach = {};             // with devices: host buffers are handles that these can reach
    os::WaitList* waits = nullptr;    // the process's; null: one of the pool's own
    // The sharing among processes of the node; null: none. Only the pool uses it from Create on.
    io::NodeShare* share = nullptr;
    uint64_t shared_bytes = 0;  // upper limit for all sharing processes together, staging included
  };

  // Pins the staging buffers now, and storage on demand. Fails with the driver's error when the staging
  // buffers cannot be pinned. `context` need not be current in any thread.
  static absl::StatusOr<std::unique_ptr<HostPool>> Create(const CudaDriver* driver, CUcontext context,
                                                          const Options& options);
  // Calls Shutdown. Leaves the memory in place: copies may still read it, and process exit frees it.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Appends up to `count` buffers to `buffers`, and returns their number. They come in runs of ascending
  // addresses that adjoin if such buffers are free. Never pins and never waits; it asks the pinning thread
  // for missing storage. Any thread.
  size_t Take(HostUse use, size_t count, std::vector<PinnedBuffer>* buffers);
  // Gives back `count` adjoining buffers, from this one on, for the next Take. Any thread.
  void Give(HostUse use, PinnedBuffer first, size_t count = 1);
  // Keep a host buffer from being handed out while somebody reads it, although its owner may give it back
  // meanwhile. Each read has one call of each, and a buffer has one reader at a time. Any thread.
  void BeginRead(PinnedBuffer buffer);
  void EndRead(PinnedBuffer buffer);
  // Gives up a staging buffer that was taken and never comes back, because a disk may write to it at any
  // time. The use has one buffer less from now on. Any thread.
  void Abandon(HostUse use);

  // Waits until storage_capacity_bytes() >= bytes. Fails with kResourceExhausted and the reason when the
  // limit is lower, when the system refuses memory, or when other processes have the rest; kCancelled after
  // Shutdown; kDeadlineExceeded at the user's limit of waits. Any thread, without a lock.
  absl::Status GrowStorageTo(uint64_t bytes);

  // For processes that share: like GrowStorageTo, but without waiting. Looks at what other processes leave,
  // and has it pinned.
  void AskFor(uint64_t bytes);

  // Ends the pinning thread within 0.2 s, and leaves it behind when it is stuck in the driver. Any thread.
  void Shutdown();

  // Size of every buffer.
  uint64_t buffer_bytes() const;
  // Whether each host buffer has a handle.
  bool reachable() const;
  // The host tier's capacity: bytes that are pinned, taken or not. It only grows. Any thread; takes no lock.
  uint64_t storage_capacity_bytes() const;
  // Upper limit of the capacity, as far as is known: Options::storage_bytes, or what was pinned when the
  // system refused more, less what other processes take. Any thread; takes no lock.
  uint64_t storage_cap_bytes() const;
  // True while the pinning thread works on storage that Take or GrowStorageTo requested. False while others
  // of the node have it. The caller has no lock.
  bool storage_growing() const;
  // Bytes of host buffers that are taken.
  uint64_t storage_in_use() const;
  // Buffers of this use that nobody has taken. Storage that is not pinned yet counts.
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
