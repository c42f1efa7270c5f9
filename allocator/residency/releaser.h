// Releaser: gives chunks of a device back to the driver, for memory that is not ours.
//
// The application's other allocations give their size (YieldToExternal). No call gives the driver's own
// needs: code that is loaded when a kernel is first asked for, local memory of a kernel, graphs. A call that
// needs such memory fails on a full device. It is repeated after more and more has been given back
// (GiveBack), and the device's free memory limits our chunks from then on.
//
// DeviceResidency creates it. Any thread may call unless a method says otherwise. It takes the table's lock.
// Errors of the driver become the device's error.

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
  // `wake` makes the device's thread poll again.
  Releaser(Core* core, Charges* charges, Evictor* evictor, std::function<void()> wake);

  // Residency::EmptyCache.
  absl::Status EmptyCache();

  // Gives the chunks that back nothing to the driver.
  absl::Status ReleaseFree();

  // Counts an external allocation that is about to be made, and gives up chunks until it fits the budget
  // beside ours, for up to a second. The context must be current.
  void YieldToExternal(uint64_t bytes);

  // Residency::GiveBack. The first attempt gives up the memory that no live block needs; later attempts evict
  // idle blocks. May wait for the GPU and the disk, for as long as chunks are given up.
  bool GiveBack(int attempt, uint64_t bytes_wanted);

  // ---- Device's thread.

  // Asks each second how much device memory is free, while that limits our chunks. Returns true when the
  // limit has changed.
  bool PollDeviceLimit();
  // Whether the device's memory limits our chunks, so that PollDeviceLimit has to ask again.
  bool limited() const { return limit_asked_ != 0; }

 private:
  bool ReleaseUnused(uint64_t bytes_wanted);
  bool EvictIdle(uint64_t bytes);
  // Waits until no more chunks exist than the target allows. Ends after `most_nanos`, or after
  // `most_without_progress` in which no chunk was given up; both are in nanoseconds.
  void AwaitTarget(int64_t most_nanos, int64_t most_without_progress);
  // Decommits up to `chunks` chunks of cached blocks and waits for the end of the decommits.
  absl::Status DecommitCache(uint64_t chunks);
  absl::Status ReleaseHandles(const std::vector<ChunkHandle>& handles);

  Core* const core_;
  Charges* const charges_;
  Evictor* const evictor_;
  const std::function<void()> wake_;
  // Time at which the device's free memory was last asked for; 0 while it does not limit our chunks. It is
  // stored under the table's lock, and the device's thread reads it without the lock.
  os::Atomic<int64_t> limit_asked_{0};
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_RELEASER_H_
