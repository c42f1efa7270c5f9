// The state of HostPool, shared with its pinning thread. Only the host_pool*.cc files include it.
// - host_pool_state.cc: pinning, waiting for it, taking buffers and giving them back.
// - host_pool_share.cc: what other processes of the node leave, and what is given back to them.
//
// Threads: callers of HostPool, under the lock, and the pinning thread. Where pinning fails the host tier stays
// as large as it is.

#ifndef SPILLWAY_ALLOCATOR_TIER_HOST_POOL_STATE_H_
#define SPILLWAY_ALLOCATOR_TIER_HOST_POOL_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
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
  // Memory that was pinned at once, for storage.
  struct Slab {
    size_t buffers = 0;
    bool leaves = false;
    std::vector<std::byte*> free;  // while it leaves: buffers that nobody has
    size_t readers = 0;            // BeginRead without EndRead
  };
  using Slabs = std::map<std::byte*, Slab>;  // by the first byte
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
        cap(options_in.storage_bytes / options_in.buffer_bytes * options_in.buffer_bytes),
        fair_cap(cap.load()) {}

  Kind& KindOf(HostUse use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return kinds[static_cast<int>(use)]; }
  void AddSlabLocked(HostUse use, std::byte* slab, size_t buffers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void AskLocked(const std::shared_ptr<State>& self, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RefuseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  size_t NextSlabLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void PinLoop();
  absl::Status NoMoreLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool PinNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void NotePinLocked(uint64_t bytes, int64_t nanos) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Sharing with other processes.
  uint64_t StorageOf(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void AskPeersLocked(const std::shared_ptr<State>& self, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LookAtPeersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void ChooseLeavingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool StartLeavingLocked(Slabs::value_type* slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void TakeBackLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool UnpinNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Slabs::value_type* SlabOf(const std::byte* buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  uint64_t LeavingBytesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return kinds[static_cast<int>(HostUse::kStorage)].created * options.buffer_bytes - capacity.load();
  }
  // Whether something is to change soon.
  bool ShortLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return capacity.load() < std::min(wanted, fair_cap) || capacity.load() > fair_cap ||
           leaving_slabs.load() > 0;
  }

  const CudaDriver* const driver;
  const CUcontext context;
  const Options options;
  os::WaitList own_waits;
  os::WaitList* const waits;
  const uint64_t staging_bytes;

  // Bytes of storage. Written under mu, read without it by SharedCapacity, which promises by them.
  os::Atomic<uint64_t> capacity{0};
  os::Atomic<uint64_t> cap;
  os::Atomic<size_t> leaving_slabs{0};  // slabs that leave; written under mu

  mutable os::Mutex mu{os::LockRank::kTier};
  os::CondVar asked;   // wanted or stopping changed
  os::CondVar pinned;  // capacity, cap, stopping or ended changed
  Kind kinds[3] ABSL_GUARDED_BY(mu) = {Kind{FreeBuffers(options.buffer_bytes)},
                                       Kind{FreeBuffers(options.buffer_bytes)},
                                       Kind{FreeBuffers(options.buffer_bytes)}};
  Slabs slabs ABSL_GUARDED_BY(mu);
  uint64_t slabs_at_once ABSL_GUARDED_BY(mu) = 1;  // as one, 2 where a slab takes little time
  uint64_t fair_cap ABSL_GUARDED_BY(mu);  // bytes of storage that the others have to leave to this process
  uint64_t kept_bytes ABSL_GUARDED_BY(mu) = 0;  // of a slab that the driver did not let go; it is lost
  std::function<bool(uint64_t, uint64_t)> fits ABSL_GUARDED_BY(mu);
  uint64_t wanted ABSL_GUARDED_BY(mu) = 0;   // bytes of storage: the most that was asked for so far
  absl::Status refusal ABSL_GUARDED_BY(mu);  // the error that lowered the cap
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool ended ABSL_GUARDED_BY(mu) = false;  // the thread will not use this object again
  os::Thread thread ABSL_GUARDED_BY(mu);   // started with the first need
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_HOST_POOL_STATE_H_
