// ChunkPool: the physical memory of one device, counted in chunks. The driver creates this memory in handles
// of one chunk or more. Handles are as large as possible, because each call on a mapping costs a fixed time
// for each handle that it covers, whatever its bytes. A block of n chunks is backed by the fewest handles
// whose sizes are powers of two (PartsOf), so that blocks of equal size exchange their memory without a call
// of the pool's. It is backed by other sizes only while the driver has just refused memory (TakeAsTheyAre).
//
// Handles are created up to a target. A free handle is kept for the next taker, since cuMemCreate is much
// slower than cuMemMap, and goes back to the driver when the target falls. When the free handles have other
// sizes than a taker needs, they are released and created anew (a Supply lists both), so memory in the wrong
// sizes never causes a refusal. The pool does not know which block a handle backs.
//
// The residency module keeps the account under the lock of the block table. The driver calls below run on
// launch threads and on the device's thread, without that lock. They fail with the driver's error; Make fails
// when the device has no memory left.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_
#define SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// Physical memory that the driver created in one call.
struct ChunkHandle {
  CUmemGenericAllocationHandle handle = 0;
  uint32_t chunks = 0;  // a power of two
};

// Sum of the chunks of these handles.
uint64_t ChunksOf(const std::vector<ChunkHandle>& handles);

// Memory on its way to some blocks: the handles that the account gave, and the work that the driver is still
// to do.
struct Supply {
  std::vector<ChunkHandle> handles;
  std::vector<ChunkHandle> to_release;  // given back to the driver first,
  std::vector<uint32_t> to_create;      // then handles of these sizes are created, in chunks
  uint64_t more_released = 0;           // chunks that are released and not created again
  bool ready() const { return to_release.empty() && to_create.empty(); }
};

// The account alone. Not thread-safe; the owner's lock guards it. Make and Release below call the driver
// without the lock, each of them between two calls of the account.
class ChunkPool {
 public:
  // The largest handle, in chunks of 2 MiB: 128 MiB. A larger one would save little: at 128 MiB the calls for
  // a handle take 2 % of the time of its copies (docs/decisions/0017-handles-of-several-sizes.md).
  static constexpr uint32_t kLargestHandle = 64;

  // `largest` is the size of the largest handle, in chunks; a power of two.
  explicit ChunkPool(uint32_t largest = kLargestHandle);

  // All figures are in chunks.
  uint64_t created() const { return created_; }  // not given back to the driver: free, in use or on their way
  uint64_t free() const { return free_chunks_; }  // part of created() that backs nothing
  uint64_t target() const { return target_; }     // upper limit of created()
  uint64_t peak_created() const { return peak_created_; }
  // Chunks that a taker could have now: the free ones, and those that may still be created.
  uint64_t available() const { return free_chunks_ + (target_ > created_ ? target_ - created_ : 0); }
  // Chunks that must go back to the driver and are not on their way yet.
  uint64_t excess() const { return created_ - releasing_ > target_ ? created_ - releasing_ - target_ : 0; }
  // Whether more chunks exist than the target allows, including those on their way to the driver.
  bool above_target() const { return created_ > target_; }

  void set_target(uint64_t chunks) { target_ = chunks; }
  // Lowers the target to the chunks that exist now.
  void LowerTarget() { target_ = std::min(target_, created_ - releasing_); }

  // The sizes of the handles that back a block, largest first.
  std::vector<uint32_t> PartsOf(uint64_t chunks) const;

  // Takes memory for blocks of these numbers of chunks, for all of them or for none: free handles of the
  // right sizes, then new ones within the target, then free handles of other sizes, to be created anew.
  // Returns false when not enough is available. A supply that is not ready must be given to Make and then to
  // End.
  bool Begin(const std::vector<uint64_t>& blocks, Supply* supply);
  // Takes free handles of any sizes if they back these blocks exactly, for all of the blocks or for none.
  bool TakeAsTheyAre(const std::vector<uint64_t>& blocks, std::vector<ChunkHandle>* taken);
  // Ends a supply after Make, whether Make succeeded or failed. Chunks that Make has released or not created
  // no longer count.
  void End(Supply* supply);
  // Takes the handles of a block of `chunks` chunks out of `handles`, trying the largest first. Returns none
  // when they do not back the block exactly. Serves the blocks of one Begin or TakeAsTheyAre in any order.
  static std::vector<ChunkHandle> Portion(uint64_t chunks, std::vector<ChunkHandle>* handles);

  // Takes free handles as they are, of `chunks` or somewhat more together, or all that are free when there
  // are fewer.
  void TakeAtLeast(uint64_t chunks, std::vector<ChunkHandle>* taken);
  // Puts handles back.
  void Give(std::vector<ChunkHandle>* handles);
  // Takes free handles of `chunks` or somewhat more together, at most all that are free. The caller hands
  // them to Release and then calls EndRelease. Returns the number of their chunks, which count as created
  // until then.
  uint64_t BeginRelease(uint64_t chunks, std::vector<ChunkHandle>* handles);
  void EndRelease(uint64_t chunks);

 private:
  bool TakeOfSize(uint32_t chunks, std::vector<ChunkHandle>* taken);

  const uint32_t largest_;
  std::vector<std::vector<ChunkHandle>> free_;  // by the logarithm of their size
  uint64_t free_chunks_ = 0;
  uint64_t created_ = 0;
  uint64_t releasing_ = 0;  // part of created_ that is on its way back to the driver
  uint64_t peak_created_ = 0;
  uint64_t target_ = 0;
};

// Does the work that the supply still needs from the driver. On failure `to_create` has what is missing; the
// error is kResourceExhausted when the device has no memory left. Calls the driver.
absl::Status Make(const CudaDriver* driver, int device, uint64_t chunk_bytes, Supply* supply);
// Gives handles back to the driver; they must not be mapped. Tries all of them and returns the first error.
// Calls the driver.
absl::Status Release(const CudaDriver* driver, const std::vector<ChunkHandle>& handles);

// Maps `handles` at `address`, in order, and makes them readable and writable for `device`. Nothing stays
// mapped after a failure, unless the unmap fails as well: then `stays_mapped` becomes true. cuMemSetAccess
// may answer NOT_READY while other work runs, so it is tried again a bounded number of times. Calls the
// driver.
absl::Status MapChunks(const CudaDriver* driver, int device, uint64_t address, uint64_t chunk_bytes,
                       const std::vector<ChunkHandle>& handles, bool* stays_mapped);
// Lets another device use the memory that is mapped there. Fails when the devices cannot reach each other's
// memory. Calls the driver.
absl::Status GrantAccess(const CudaDriver* driver, int device, uint64_t address, uint64_t bytes);
// Unmaps the whole range that MapChunks mapped. The caller has made sure that no queued work uses it. Calls
// the driver.
absl::Status UnmapChunks(const CudaDriver* driver, uint64_t address, uint64_t bytes);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_
