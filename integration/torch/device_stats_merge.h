// What Spillway's blocks add to PyTorch's memory statistics of one device. Native keeps its own figures; this class
// keeps ours and the peaks of both together, which cannot be had from two separate peaks. Not thread-safe: its
// DeviceLedger holds a lock around each call.

#ifndef SPILLWAY_INTEGRATION_TORCH_DEVICE_STATS_MERGE_H_
#define SPILLWAY_INTEGRATION_TORCH_DEVICE_STATS_MERGE_H_

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>

namespace spillway::integration {

class DeviceStatsMerge {
 public:
  using Stats = c10::CachingDeviceAllocator::DeviceStats;

  // A block of ours came or went. `requested`: bytes asked for; `counted`: the same rounded as native rounds.
  void OnAllocate(size_t requested, size_t counted);
  void OnFree(size_t requested, size_t counted);
  void OnRetry() { ++retries_; }
  void OnOutOfMemory() { ++ooms_; }

  // Physical bytes that Spillway holds now, and the most since the process began.
  void SetReserved(size_t now, size_t peak_since_start);

  // Raises the common peaks. `native` is native's own state at this moment; called after each allocation of either.
  void NotePeaks(const Stats& native);

  // Adds ours to `native` and puts the common peaks in.
  Stats Merge(Stats native);

  void ResetAccumulated();
  void ResetPeaks(const Stats& native);

 private:
  Stats own_;
  Stats peaks_;                     // only the `peak` fields: of native and ours together
  size_t reserved_peak_floor_ = 0;  // Spillway's all-time peak when the peaks were last reset
  size_t reserved_peak_ = 0;
  int64_t retries_ = 0;
  int64_t ooms_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_DEVICE_STATS_MERGE_H_
