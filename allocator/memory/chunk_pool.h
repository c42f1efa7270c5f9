// ChunkPool: the physical memory of one device, in chunks of one size. Chunks are created up to a target and
// kept for the next taker when they are free, since cuMemCreate is two orders slower than cuMemMap. They go
// back to the driver when the target falls. The pool does not know which block a chunk backs.
//
// The residency module keeps the books under the lock of the block table. The driver calls below run on
// launch threads and on the device's thread without that lock. They fail with the driver's error; CreateChunk
// fails when the device has no memory left.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_
#define SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

using ChunkHandle = CUmemGenericAllocationHandle;

// The books alone. Not thread-safe: the owner's lock guards them. CreateChunk and ReleaseChunk below call the
// driver without the lock, each between two calls of the books.
class ChunkPool {
 public:
  uint64_t created() const { return created_; }   // chunks created and not released, free or in use
  uint64_t free() const { return free_.size(); }  // of those, the ones that back nothing
  uint64_t target() const { return target_; }     // upper limit of created()
  uint64_t peak_created() const { return peak_created_; }
  // Chunks that a taker could have now: the free ones, and those that may still be created.
  uint64_t available() const { return free_.size() + (target_ > created_ ? target_ - created_ : 0); }
  // Chunks that must go back to the driver.
  uint64_t excess() const { return created_ > target_ ? created_ - target_ : 0; }

  void set_target(uint64_t chunks) { target_ = chunks; }

  // Moves up to `count` free chunks to the end of `taken`; returns how many.
  uint64_t TakeFree(uint64_t count, std::vector<ChunkHandle>* taken);
  // Puts chunks back.
  void Give(std::vector<ChunkHandle>* chunks);

  // Reserves the right to create up to `count` chunks within the target; returns how many. Each must be
  // followed by a successful CreateChunk or by CancelCreate.
  uint64_t BeginCreate(uint64_t count);
  void CancelCreate(uint64_t count) { created_ -= count; }
  // Takes up to `count` free chunks out of the books, to be handed to ReleaseChunk.
  uint64_t BeginRelease(uint64_t count, std::vector<ChunkHandle>* chunks);

 private:
  std::vector<ChunkHandle> free_;
  uint64_t created_ = 0;
  uint64_t peak_created_ = 0;
  uint64_t target_ = 0;
};

// A new physical chunk; kResourceExhausted when the device has no memory left. Calls the driver.
absl::Status CreateChunk(const CudaDriver* driver, int device, uint64_t chunk_bytes, ChunkHandle* chunk);
// Gives a chunk back to the driver; it must not be mapped. Calls the driver.
absl::Status ReleaseChunk(const CudaDriver* driver, ChunkHandle chunk);

// Maps `chunks` at `address`, in order, and makes them readable and writable for `device`. On failure nothing
// stays mapped; where the unmap fails as well, `stays_mapped` becomes true. cuMemSetAccess may answer
// NOT_READY while other work runs: it is tried again a bounded number of times. Calls the driver.
absl::Status MapChunks(const CudaDriver* driver, int device, uint64_t address, uint64_t chunk_bytes,
                       const std::vector<ChunkHandle>& chunks, bool* stays_mapped);
// Lets another device touch what is mapped there. Fails where the devices cannot reach each other's memory.
// Calls the driver.
absl::Status GrantAccess(const CudaDriver* driver, int device, uint64_t address, uint64_t bytes);
// Unmaps the whole range that MapChunks mapped. The caller has made sure that no queued work touches it.
// Calls the driver.
absl::Status UnmapChunks(const CudaDriver* driver, uint64_t address, uint64_t bytes);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_
