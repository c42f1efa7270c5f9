// HostPool: pinned host memory in pieces of one chunk, shared by the devices of the process. Most pieces are the host
// tier (they hold spilled chunks); a few are staging, apart for evictions and for faults, so that neither can starve
// the other. Slabs are registered with the driver as they are needed, never on the launch path.

#ifndef SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_
#define SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "io/os/sync.h"

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
  };

  // Registers the staging pieces now, storage on demand. `context` must be current in no particular thread.
  static absl::StatusOr<std::unique_ptr<HostPool>> Create(const CudaDriver* driver, CUcontext context,
                                                          const Options& options);
  ~HostPool();  // leaves the memory in place: copies may still read it, and process exit frees it

  // Up to `count` pieces appended to `pieces`; returns how many. Any thread; storage may register a slab, which takes
  // milliseconds. A refused registration lowers the cap for good.
  size_t Take(HostUse use, size_t count, std::vector<HostPiece>* pieces);
  void Give(HostUse use, HostPiece piece);

  uint64_t piece_bytes() const { return options_.piece_bytes; }
  // Bytes that the host tier may hold, after refused registrations.
  uint64_t storage_capacity() const;
  uint64_t storage_in_use() const;
  // Pieces of the kind that nobody has taken, storage not yet registered included.
  size_t Free(HostUse use) const;
  // Pieces of the kind that there are, taken or not.
  size_t Limit(HostUse use) const;

 private:
  struct Kind {
    std::vector<HostPiece> free;
    size_t limit = 0;    // pieces
    size_t created = 0;  // of those, registered
  };

  HostPool(const CudaDriver* driver, CUcontext context, const Options& options);
  absl::Status GrowLocked(Kind* kind, size_t pieces) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CudaDriver* const driver_;
  const CUcontext context_;
  const Options options_;
  mutable os::Mutex mu_{os::LockRank::kTier};
  Kind kinds_[3] ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_HOST_POOL_H_
