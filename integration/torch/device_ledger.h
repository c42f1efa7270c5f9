// DeviceLedger: the blocks of one device that Spillway handed to PyTorch, and the statistics about them. It
// owns the list of live blocks; memory itself is the engine's. Any thread; each call takes the ledger's lock
// and calls neither the engine nor PyTorch's native allocator while it holds it. Nothing fails.

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

// A block that PyTorch holds.
struct LedgerBlock {
  size_t requested = 0;  // bytes asked for
  size_t counted = 0;    // bytes in PyTorch's statistics: rounded as native rounds
  void* stream = nullptr;
  std::shared_ptr<c10::GatheredContext> context;  // stack at the allocation, if history is on
};

class DeviceLedger {
 public:
  using Stats = torch_stats::DeviceStats;

  // Bytes as native's statistics count a block of this size.
  static size_t CountedBytes(size_t requested) { return (requested + 511) / 512 * 512; }

  // A block was handed out. `native` gives native's statistics now; it is called only when a common peak may
  // have risen. `reserved`, `reserved_peak`: as the engine counts them.
  using NativeStats = c10::function_ref<Stats()>;
  void Add(void* pointer, LedgerBlock block, NativeStats native, size_t reserved, size_t reserved_peak);
  // The block is about to be freed; empty when it is not on the list.
  std::optional<LedgerBlock> Remove(void* pointer);
  std::optional<LedgerBlock> Find(void* pointer) const;

  // Native handed out a block of so many bytes: the common peaks may have risen.
  void NoteNative(size_t bytes, NativeStats native);
  // True once this device has had a block of ours: before that, native's own peaks are the common ones.
  bool used() const { return used_.load(std::memory_order_relaxed); }

  Stats Merge(Stats native, size_t reserved, size_t reserved_peak);
  void ResetAccumulated();
  void ResetPeaks(const Stats& native);
  void NoteRetry();
  void NoteOutOfMemory();

  // Of our blocks: bytes in PyTorch's statistics, and physical bytes as last given to Add or Merge.
  size_t allocated_bytes() const;
  size_t reserved_bytes() const;

  // One segment with one block for each live block, in order of address.
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
