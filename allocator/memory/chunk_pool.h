// ChunkPool: the device's physical memory that Spillway holds, in chunks of one size. It creates chunks up to a
// target, keeps the free ones for the next user (cuMemCreate is two orders slower than cuMemMap), and gives them
// back to the driver when the target falls. Which block a chunk backs is its taker's business.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_
#define SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

using ChunkHandle = CUmemGenericAllocationHandle;

// Books only, not thread-safe: guarded by its owner's lock. The driver is called by CreateChunk and ReleaseChunk
// below, without the lock, between the bookkeeping calls that bracket them.
class ChunkPool {
 public:
  uint64_t held() const { return held_; }         // chunks created and not released, free or in use
  uint64_t free() const { return free_.size(); }  // of those, backing nothing
  uint64_t target() const { return target_; }     // upper limit of held()
  uint64_t peak_held() const { return peak_held_; }
  // Chunks that a taker could have now: free ones and those still to be created.
  uint64_t available() const { return free_.size() + (target_ > held_ ? target_ - held_ : 0); }
  // Chunks that must go back to the driver.
  uint64_t excess() const { return held_ > target_ ? held_ - target_ : 0; }

  void set_target(uint64_t chunks) { target_ = chunks; }

  // Moves up to `count` free chunks to the end of `taken`; returns how many.
  uint64_t TakeFree(uint64_t count, std::vector<ChunkHandle>* taken);
  // Puts chunks back.
  void Give(std::vector<ChunkHandle>* chunks);

  // Reserves the right to create up to `count` chunks within the target; returns how many. Each must be followed by
  // a successful CreateChunk or by CancelCreate.
  uint64_t BeginCreate(uint64_t count);
  void CancelCreate(uint64_t count) { held_ -= count; }
  // Takes up to `count` free chunks out of the books, to be handed to ReleaseChunk.
  uint64_t BeginRelease(uint64_t count, std::vector<ChunkHandle>* chunks);

 private:
  std::vector<ChunkHandle> free_;
  uint64_t held_ = 0;
  uint64_t peak_held_ = 0;
  uint64_t target_ = 0;
};

// A new physical chunk; kResourceExhausted when the device has no memory left. Calls the driver.
absl::Status CreateChunk(const CudaDriver* driver, int device, uint64_t chunk_bytes, ChunkHandle* chunk);
// Gives a chunk back to the driver; it must not be mapped. Calls the driver.
absl::Status ReleaseChunk(const CudaDriver* driver, ChunkHandle chunk);

// Maps `chunks` at `address`, in order, and makes them readable and writable for `device`. On failure nothing stays
// mapped, or `stays_mapped` becomes true: what had been mapped could not be unmapped either. NOT_READY from set-access (seen under concurrent work) is tried again a bounded number of times. Calls the
// driver.
absl::Status MapChunks(const CudaDriver* driver, int device, uint64_t address, uint64_t chunk_bytes,
                       const std::vector<ChunkHandle>& chunks, bool* stays_mapped);
// Unmaps the whole range that MapChunks mapped. The caller has made sure that no queued work touches it.
// Lets another device touch what is mapped there. Fails where the devices cannot reach each other's memory.
absl::Status GrantAccess(const CudaDriver* driver, int device, uint64_t address, uint64_t bytes);
absl::Status UnmapChunks(const CudaDriver* driver, uint64_t address, uint64_t bytes);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_
