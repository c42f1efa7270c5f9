// DeviceLedger: the blocks of one device that Spillway handed to PyTorch, and the statistics about them. It
// owns the list of live blocks; the memory itself is the engine's. Thread-safe: each call takes the ledger's
// lock, and calls neither the engine nor PyTorch's native allocator under it. No call fails.

#ifndef SPILLWAY_INTEGRATION_TORCH_DEVICE_LEDGER_H_
#define SPILLWAY_INTEGRATION_TORCH_DEVICE_LEDGER_H_

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/torch/compat_types.h"
#include "integration/torch/device_stats_merge.h"
#include "io/os/sync.h"

namespace spillway::integration {

// A block in PyTorch's hands.
struct LedgerBlock {
  size_t requested = 0;  // bytes asked for
  size_t counted = 0;    // bytes in PyTorch's statistics: rounded as native rounds
  void* stream = nullptr;
  std::shared_ptr<c10::GatheredContext> context;  // stack at the allocation, if history is on
};

class DeviceLedger {
 public:
  using Stats = torch_stats::DeviceStats;

  // Returns the bytes that native's statistics count for a block of this size.
  static size_t CountedBytes(size_t requested) { return (requested + 511) / 512 * 512; }

  // Adds a block that was handed out. `native` returns native's statistics now; it is called only if a common
  // peak may have risen. `reserved`, `reserved_peak`: as the engine counts them.
  using NativeStats = c10::function_ref<Stats()>;
  void Add(void* pointer, LedgerBlock block, NativeStats native, size_t reserved, size_t reserved_peak);
  // Removes a block that is about to be freed; empty if it is not on the list.
  std::optional<LedgerBlock> Remove(void* pointer);
  std::optional<LedgerBlock> Find(void* pointer) const;

  // Records that native handed out a block of this size: the common peaks may have risen.
  void RecordNative(size_t bytes, NativeStats native);
  // Returns true once this device has had a block of ours. Native's own peaks are the common ones before
  // that.
  bool used() const { return used_.load(std::memory_order_relaxed); }

  Stats Merge(Stats native, size_t reserved, size_t reserved_peak);
  void ResetAccumulated();
  void ResetPeaks(const Stats& native);
  void RecordRetry();
  void RecordOutOfMemory();

  // Figures of our blocks: bytes in PyTorch's statistics, and physical bytes as last given to Add or Merge.
  size_t allocated_bytes() const;
  size_t reserved_bytes() const;

  // Appends one segment with one block for each live block, in order of address.
  void AppendSegments(c10::DeviceIndex device, std::vector<torch_cuda::SegmentInfo>* segments) const;

 private:
  void RefreshPeaks(DeviceStatsMerge::NativeTotal before, NativeStats native);

  std::atomic<bool> used_{false};  // set once, by the first Add; pairs with used()
  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<void*, LedgerBlock> live_ ABSL_GUARDED_BY(mu_);
  size_t allocated_ ABSL_GUARDED_BY(mu_) = 0;
  size_t reserved_ ABSL_GUARDED_BY(mu_) = 0;
  DeviceStatsMerge stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_DEVICE_LEDGER_H_
