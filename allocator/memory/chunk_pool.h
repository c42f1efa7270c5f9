// ChunkPool: the physical memory of one device, counted in chunks. The driver makes it in handles of one chunk
// or more: each call on a mapping costs a fixed time for each handle that it covers, not for its bytes. A
// block of n chunks is backed by the fewest handles whose sizes are powers of two (PartsOf), so that blocks of
// equal size exchange their memory without a call of the pool's; by others only while the driver has just
// refused memory (TakeAsTheyAre).
//
// Handles are created up to a target, and kept for the next taker when they are free, since cuMemCreate is
// much slower than cuMemMap. They go back to the driver when the target falls. Where the free ones have other
// sizes than a taker needs, they are released and made anew (a Supply says which): memory in the wrong sizes
// refuses nothing. The pool does not know which block a handle backs.
//
// The residency module keeps the account under the lock of the block table. The driver calls below run on
// launch threads and on the device's thread without that lock. They fail with the driver's error; Make fails
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

// Physical memory that the driver made at once.
struct ChunkHandle {
  CUmemGenericAllocationHandle handle = 0;
  uint32_t chunks = 0;  // a power of two
};

// All chunks of these handles.
uint64_t ChunksOf(const std::vector<ChunkHandle>& handles);

// Memory for some blocks, on its way to them: what the account gave, and what the driver is still to do for
// it.
struct Supply {
  std::vector<ChunkHandle> handles;
  std::vector<ChunkHandle> to_release;  // first these go back to the driver,
  std::vector<uint32_t> to_create;      // then these sizes are created, in chunks
  uint64_t more_released = 0;           // chunks that are released and not created
  bool ready() const { return to_release.empty() && to_create.empty(); }
};

// The account alone. Not thread-safe: the owner's lock guards it. Make and Release below call the driver
// without the lock, each between two calls of the account.
class ChunkPool {
 public:
  // The largest handle, in chunks of 2 MiB: 128 MiB. A larger one would save little: at 128 MiB the calls for
  // a handle take 2 % of the time of its copies (docs/decisions/0017-handles-of-several-sizes.md).
  static constexpr uint32_t kLargestHandle = 64;

  // `largest`: of a handle, in chunks; a power of two.
  explicit ChunkPool(uint32_t largest = kLargestHandle);

  // All in chunks.
  uint64_t created() const { return created_; }  // not given back to the driver: free, in use or on their way
  uint64_t free() const { return free_chunks_; }  // of those, the ones that back nothing
  uint64_t target() const { return target_; }     // upper limit of created()
  uint64_t peak_created() const { return peak_created_; }
  // Chunks that a taker could have now: the free ones, and those that may still be created.
  uint64_t available() const { return free_chunks_ + (target_ > created_ ? target_ - created_ : 0); }
  // Chunks that must go back to the driver and are not on their way.
  uint64_t excess() const { return created_ - releasing_ > target_ ? created_ - releasing_ - target_ : 0; }
  // Whether there are more than the target, those on their way included.
  bool above_target() const { return created_ > target_; }

  void set_target(uint64_t chunks) { target_ = chunks; }
  // No more than there are is the target from now on.
  void LowerTarget() { target_ = std::min(target_, created_ - releasing_); }

  // The sizes of the handles that back a block, largest first.
  std::vector<uint32_t> PartsOf(uint64_t chunks) const;

  // Takes memory for blocks of these many chunks, for all of them or for none: free handles of the right
  // sizes, then what may be created within the target, then free handles of other sizes, to be made anew.
  // False: not enough is available. A supply that is not ready must be given to Make, and then to End.
  bool Begin(const std::vector<uint64_t>& blocks, Supply* supply);
  // Takes free handles of whatever sizes, where they back these blocks just so; for all of them or for none.
  bool TakeAsTheyAre(const std::vector<uint64_t>& blocks, std::vector<ChunkHandle>* taken);
  // Make has ended, well or with an error: what it has released or not created does not count any more.
  void End(Supply* supply);
  // The handles of a block of so many chunks, out of `handles`, the largest that fit first; none when these do
  // not back it just so. Serves the blocks of one Begin or TakeAsTheyAre in any order of theirs.
  static std::vector<ChunkHandle> Portion(uint64_t chunks, std::vector<ChunkHandle>* handles);

  // Takes free handles as they are, `chunks` or somewhat more together; all that are free when those are fewer.
  void TakeAtLeast(uint64_t chunks, std::vector<ChunkHandle>* taken);
  // Puts handles back.
  void Give(std::vector<ChunkHandle>* handles);
  // Takes free handles of `chunks` or somewhat more together, all that are free at most, to be handed to
  // Release, and then to EndRelease. Returns their chunks, which count until then.
  uint64_t BeginRelease(uint64_t chunks, std::vector<ChunkHandle>* handles);
  void EndRelease(uint64_t chunks);

 private:
  bool TakeOfSize(uint32_t chunks, std::vector<ChunkHandle>* taken);

  const uint32_t largest_;
  std::vector<std::vector<ChunkHandle>> free_;  // by the logarithm of their size
  uint64_t free_chunks_ = 0;
  uint64_t created_ = 0;
  uint64_t releasing_ = 0;  // of these, on their way back to the driver
  uint64_t peak_created_ = 0;
  uint64_t target_ = 0;
};

// Does what the supply is still to have done. On failure, kResourceExhausted when the device has no memory
// left, `to_create` has what is missing. Calls the driver.
absl::Status Make(const CudaDriver* driver, int device, uint64_t chunk_bytes, Supply* supply);
// Gives handles back to the driver; they must not be mapped. All of them are tried; the first error. Calls
// the driver.
absl::Status Release(const CudaDriver* driver, const std::vector<ChunkHandle>& handles);

// Maps `handles` at `address`, in order, and makes them readable and writable for `device`. On failure nothing
// stays mapped; where the unmap fails as well, `stays_mapped` becomes true. cuMemSetAccess may answer
// NOT_READY while other work runs: it is tried again a bounded number of times. Calls the driver.
absl::Status MapChunks(const CudaDriver* driver, int device, uint64_t address, uint64_t chunk_bytes,
                       const std::vector<ChunkHandle>& handles, bool* stays_mapped);
// Lets another device touch what is mapped there. Fails where the devices cannot reach each other's memory.
// Calls the driver.
absl::Status GrantAccess(const CudaDriver* driver, int device, uint64_t address, uint64_t bytes);
// Unmaps the whole range that MapChunks mapped. The caller has made sure that no queued work touches it.
// Calls the driver.
absl::Status UnmapChunks(const CudaDriver* driver, uint64_t address, uint64_t bytes);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_MEMORY_CHUNK_POOL_H_
