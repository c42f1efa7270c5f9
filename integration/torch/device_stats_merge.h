// DeviceStatsMerge adds Spillway's blocks to PyTorch's memory statistics of one device. Native keeps its own
// figures. This class keeps ours and the peaks of both together, which cannot be computed from two separate
// peaks. Not thread-safe: its DeviceLedger holds a lock around each call.

#ifndef SPILLWAY_INTEGRATION_TORCH_DEVICE_STATS_MERGE_H_
#define SPILLWAY_INTEGRATION_TORCH_DEVICE_STATS_MERGE_H_

#include <cstddef>

#include "integration/torch/compat_types.h"

namespace spillway::integration {

class DeviceStatsMerge {
 public:
  using Stats = torch_stats::DeviceStats;

  // Records that a block of ours came or went. `requested`: bytes asked for; `counted`: the same rounded as
  // native rounds.
  void OnAllocate(size_t requested, size_t counted);
  void OnFree(size_t requested, size_t counted);
  void OnRetry() { ++retries_; }
  void OnOutOfMemory() { ++ooms_; }

  // Sets the physical bytes that Spillway has now, and the most since the process began.
  void SetReserved(size_t now, size_t peak_since_start);

  // Records that native handed out a block of this size.
  void OnNative(size_t bytes);
  // Returns false if no common peak can have risen since the last RecordPeaks, whatever native has freed
  // meanwhile. Native need not be asked for its statistics then, which costs as much as an allocation.
  // Native's reserved bytes are not counted: SpillwayAllocator::EmptyNativeCache asks for them before it
  // lowers them.
  bool PeaksMayHaveRisen() const;

  // Raises the common peaks. `native` is native's own state at this moment, asked for after `native_total()`
  // had returned `total_before`.
  struct NativeTotal {
    int64_t bytes = 0;  // at most what OnNative's blocks can count for
    int64_t blocks = 0;
  };
  NativeTotal native_total() const { return native_total_; }
  void RecordPeaks(const Stats& native, NativeTotal total_before);

  // Adds ours to `native` and puts the common peaks in.
  Stats Merge(Stats native);

  void ResetAccumulated();
  void ResetPeaks(const Stats& native);

 private:
  void RaisePeaks(const Stats& native);

  Stats own_;
  Stats peaks_;            // only the `peak` fields: of native and ours together
  Stats native_;           // as last given to RecordPeaks, and
  NativeTotal native_at_;  // native_total_ before that
  NativeTotal native_total_;
  bool ask_ = true;                 // native had a block whose size here is not known
  int64_t own_reserved_noted_ = 0;  // our reserved bytes at the last RecordPeaks
  size_t reserved_peak_floor_ = 0;  // Spillway's all-time peak when the peaks were last reset
  size_t reserved_peak_ = 0;
  int64_t retries_ = 0;
  int64_t ooms_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_DEVICE_STATS_MERGE_H_
