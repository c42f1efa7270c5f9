// The state of HostPool, shared with its pinning thread. Only host_pool_state.cc includes it. Callers of
// HostPool use it under the lock, and so does the pinning thread. When pinning fails, the host tier keeps its
// size.

#ifndef SPILLWAY_ALLOCATOR_TIER_HOST_POOL_STATE_H_
#define SPILLWAY_ALLOCATOR_TIER_HOST_POOL_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "allocator/tier/free_buffers.h"
#include "allocator/tier/host_pool.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "io/os/thread.h"

namespace spillway::allocator {

struct HostPool::State {
  struct Kind {
    FreeBuffers free;
    size_t limit = 0;    // buffers that may exist
    size_t created = 0;  // buffers that are pinned
  };

  State(const CudaDriver* driver_in, CUcontext context_in, const Options& options_in)
      : driver(driver_in),
        context(context_in),
        options(options_in),
        waits(options_in.waits != nullptr ? options_in.waits : &own_waits),
        staging_bytes(
            static_cast<uint64_t>(options_in.evict_staging_buffers + options_in.fault_staging_buffers) *
            options_in.buffer_bytes),
        cap(options_in.storage_bytes / options_in.buffer_bytes * options_in.buffer_bytes) {}

  Kind& KindOf(HostUse use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return kinds[static_cast<int>(use)]; }
  void AddSlabLocked(HostUse use, std::byte* slab, size_t buffers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Makes memory for host buffers: handles, or registered memory.
  absl::StatusOr<HandleSlab> MakeSlab(size_t buffers) const;
  PinnedBuffer BufferLocked(std::byte* data) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void AskLocked(const std::shared_ptr<State>& self, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RefuseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  size_t NextSlabLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void PinLoop();
  absl::Status NoMoreLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool PinNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordPinLocked(uint64_t bytes, int64_t nanos) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Updates the cap by what other processes of the node leave.
  void ScanPeersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void AskPeersLocked(const std::shared_ptr<State>& self, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  const CudaDriver* const driver;
  const CUcontext context;
  const Options options;
  os::WaitList own_waits;
  os::WaitList* const waits;
  const uint64_t staging_bytes;

  // Bytes of storage. They are written under mu, and read without it by SharedCapacity, which promises by
  // them.
  os::Atomic<uint64_t> capacity{0};
  os::Atomic<uint64_t> cap;

  mutable os::Mutex mu{os::LockRank::kTier};
  os::CondVar asked;   // wanted or stopping changed
  os::CondVar pinned;  // capacity, cap, stopping or ended changed
  Kind kinds[3] ABSL_GUARDED_BY(mu) = {Kind{FreeBuffers(options.buffer_bytes)},
                                       Kind{FreeBuffers(options.buffer_bytes)},
                                       Kind{FreeBuffers(options.buffer_bytes)}};
  // The handles of each slab, by its start.
  std::map<const std::byte*, std::vector<CUmemGenericAllocationHandle>> handles ABSL_GUARDED_BY(mu);
  uint64_t slabs_at_once ABSL_GUARDED_BY(mu) = 1;  // slabs in one call; 2 if a slab takes little time
  std::map<std::byte*, bool> read
      ABSL_GUARDED_BY(mu);                   // host buffers that are being read: given back meanwhile?
  uint64_t wanted ABSL_GUARDED_BY(mu) = 0;   // bytes of storage: the most that was requested so far
  absl::Status refusal ABSL_GUARDED_BY(mu);  // the error that lowered the cap
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool ended ABSL_GUARDED_BY(mu) = false;  // the thread will not use this object again
  os::Thread thread ABSL_GUARDED_BY(mu);   // started when storage is first needed
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_HOST_POOL_STATE_H_
