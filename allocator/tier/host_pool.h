// HostPool: pinned host memory in pieces of one chunk, shared by the devices of the process. Most pieces are the host
// tier (they hold spilled chunks); a few are staging, apart for evictions and for faults, so that neither can starve
// the other. Storage is pinned slab by slab by a thread of the pool's own, ahead of need: nobody who takes a piece waits.

#ifndef SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_
#define SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "io/os/wait.h"

namespace spillway::allocator {

// Who may use a piece. A piece goes back to the kind that it was taken for.
enum class HostUse : int { kStorage, kEvictStaging, kFaultStaging };

struct HostPiece {
  std::byte* data = nullptr;  // page aligned, pinned, piece_bytes long
};

class HostPool {
 public:
  struct Options {
    uint64_t piece_bytes = 2 << 20;  // the chunk size
    uint64_t storage_bytes = 0;      // host tier: cap less staging; 0 = no host tier
    int evict_staging_pieces = 4;    // at least 2 where there is a disk tier, else 0
    int fault_staging_pieces = 8;    // likewise
    uint64_t slab_bytes = 32 << 20;  // registered at a time
    os::WaitList* waits = nullptr;   // the process's; null: one of the pool's own
  };

  // Registers the staging pieces now, storage on demand. `context` must be current in no particular thread.
  static absl::StatusOr<std::unique_ptr<HostPool>> Create(const CudaDriver* driver, CUcontext context,
                                                          const Options& options);
  // Calls Shutdown. Leaves the memory in place: copies may still read it, and process exit frees it.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Up to `count` pieces appended to `pieces`; returns how many. Never pins and never waits: what is missing of storage
  // is asked of the pinning thread. Any thread.
  size_t Take(HostUse use, size_t count, std::vector<HostPiece>* pieces);
  void Give(HostUse use, HostPiece piece);

  // Waits until storage_room_bytes() >= bytes. kResourceExhausted, with words, when the cap is less or the system refuses
  // memory; kCancelled after Shutdown; kDeadlineExceeded at the user's limit of waits. Any thread, no lock held.
  absl::Status GrowStorageTo(uint64_t bytes);

  // Ends the pinning thread, within 0.2 s; one that is stuck in the driver is left to itself. Any thread.
  void Shutdown();

  uint64_t piece_bytes() const;
  // Bytes of storage that are pinned, taken or not. Never falls. No lock.
  uint64_t storage_room_bytes() const;
  // The most that storage may become: what was set, or what there was when the system refused more. No lock.
  uint64_t storage_cap_bytes() const;
  // True while the pinning thread works on storage that Take or GrowStorageTo asked for. No lock held.
  bool storage_growing() const;
  uint64_t storage_in_use() const;
  // Pieces of the kind that nobody has taken, storage not yet pinned included.
  size_t Free(HostUse use) const;
  // Pieces of the kind that there are or may be, taken or not.
  size_t Limit(HostUse use) const;

 private:
  struct State;
  explicit HostPool(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;  // the pinning thread holds on to it, too
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_
