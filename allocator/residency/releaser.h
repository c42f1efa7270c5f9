// Releaser: gives chunks of a device back to the driver, for memory that is not ours. The application's other
// allocations say how much they take (YieldToExternal). What the driver takes for itself no call says: code that
// is loaded when a kernel is first asked for, local memory of a kernel, graphs. Such a call runs out of memory on
// a full device, is repeated after more and more has been given back (GiveBack), and the device's free memory
// limits our chunks from then on. DeviceResidency makes it; any thread calls it unless a method says otherwise.
// Lock: the table's. Errors of the driver become the device's error.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_RELEASER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_RELEASER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/evictor.h"

namespace spillway::allocator {

class Releaser {
 public:
  // `wake` makes the device's thread look again.
  Releaser(Core* core, Charges* charges, Evictor* evictor, std::function<void()> wake);

  // As Residency::EmptyCache.
  absl::Status EmptyCache();

  // Gives the chunks that back nothing back to the driver.
  absl::Status ReleaseFree();

  // Counts an external allocation that is about to be made, and gives up chunks until it fits the budget beside
  // ours, for up to a second. Context current.
  void YieldToExternal(uint64_t bytes);

  // As Residency::GiveBack. The first attempt gives up what no live block needs, further ones evict idle blocks.
  // May wait for the GPU and the disk, for as long as chunks are given up.
  bool GiveBack(int attempt, uint64_t bytes_wanted);

  // ---- Device's thread.

  // Where the device's memory limits our chunks, asks each second how much is free. True when the limit has
  // changed.
  bool PollDeviceLimit();
  // Whether that is to be asked again.
  bool limited() const { return limit_asked_ != 0; }

 private:
  bool ReleaseUnused(uint64_t bytes_wanted);
  bool EvictIdle(uint64_t bytes);
  // Waits until no more chunks exist than the target allows: for so long at most, and so long without one that
  // goes, both in nanoseconds.
  void AwaitTarget(int64_t most_nanos, int64_t most_without_progress);
  // Decommits up to `chunks` chunks of cached blocks and waits for the end of that.
  absl::Status DecommitCache(uint64_t chunks);
  absl::Status ReleaseHandles(const std::vector<ChunkHandle>& handles);

  Core* const core_;
  Charges* const charges_;
  Evictor* const evictor_;
  const std::function<void()> wake_;
  // When the device's free memory was last asked for; 0: it does not limit our chunks. Stored under the table's
  // lock, and read without it by the device's thread.
  os::Atomic<int64_t> limit_asked_{0};
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_RELEASER_H_
