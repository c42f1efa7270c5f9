// The part of SpillwayAllocator that answers queries: statistics, memory info, snapshots and history.

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "integration/torch/allocator.h"

namespace spillway::integration {

spillway_device_stats SpillwayAllocator::EngineStats(c10::DeviceIndex device) const {
  spillway_device_stats stats{};
  (void)api_->device_stats(device, &stats);  // zeros before the engine's first block on the device
  return stats;
}

void SpillwayAllocator::GetReserved(c10::DeviceIndex device, size_t* now, size_t* peak) const {
  (void)api_->reserved_bytes(device, now, peak);
  if (!pool_memory_.used(device)) return;
  *now -= std::min(*now, pool_memory_.bytes(device));
  *peak = *now;  // the engine's peak is of both together, so the peak counts from this read on
}

// Native keeps no record of our bytes, so a peak of both together is noticed only here.
void SpillwayAllocator::RecordNativeAllocation(size_t bytes, c10::DeviceIndex device) {
  if (bytes == 0 || device < 0 || !LedgerOf(device).used()) return;
  LedgerOf(device).RecordNative(bytes, [&] { return native_->getDeviceStats(device); });
}

void SpillwayAllocator::ReportToProfiler(void* pointer, int64_t bytes, c10::DeviceIndex device) {
  if (!c10::memoryProfilingEnabled()) return;
  const auto native = native_->getDeviceStats(device);
  const size_t allocated =
      static_cast<size_t>(native.allocated_bytes[0].current) + LedgerOf(device).allocated_bytes();
  const size_t reserved =
      static_cast<size_t>(native.reserved_bytes[0].current) + LedgerOf(device).reserved_bytes();
  c10::reportMemoryUsageToProfiler(pointer, bytes, allocated, reserved,
                                   c10::Device(c10::DeviceType::CUDA, device));
}

torch_stats::DeviceStats SpillwayAllocator::getDeviceStats(c10::DeviceIndex device) {
  auto native = native_->getDeviceStats(device);  // checks the device's number
  if (!LedgerOf(device).used()) return native;
  size_t reserved = 0;
  size_t reserved_peak = 0;
  GetReserved(device, &reserved, &reserved_peak);
  return LedgerOf(device).Merge(native, reserved, reserved_peak);
}

void SpillwayAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  native_->resetAccumulatedStats(device);
  LedgerOf(device).ResetAccumulated();
}

void SpillwayAllocator::resetPeakStats(c10::DeviceIndex device) {
  (void)getDeviceStats(device);  // brings our reserved bytes up to date first
  native_->resetPeakStats(device);
  LedgerOf(device).ResetPeaks(native_->getDeviceStats(device));
}

std::pair<size_t, size_t> SpillwayAllocator::getMemoryInfo(c10::DeviceIndex device) {
  size_t free = 0;
  size_t total = 0;
  if (api_->memory_info(device, &free, &total) == 0) return {free, total};
  const c10::cuda::CUDAGuard guard(device);
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {free, total};
}

void SpillwayAllocator::cacheInfo(c10::DeviceIndex device, size_t* largest) {
  native_->cacheInfo(device, largest);
  // Any number of cached chunks can make up one block.
  *largest = std::max<size_t>(*largest, EngineStats(device).cached_bytes);
}

void* SpillwayAllocator::getBaseAllocation(void* pointer, size_t* bytes) {
  if (!Owns(pointer)) return native_->getBaseAllocation(pointer, bytes);
  if (kBaseIsForSharing) RefuseToShareOurs(pointer);
  void* base = nullptr;
  size_t size = 0;
  TORCH_CHECK(api_->find_range(pointer, &base, &size) == 0, "invalid device pointer: ", pointer);
  if (bytes != nullptr) *bytes = DeviceLedger::CountedBytes(size);
  return base;
}

torch_cuda::SnapshotInfo SpillwayAllocator::snapshot(PoolId pool, bool include_traces) {
  torch_cuda::SnapshotInfo result = native_.snapshot(pool, include_traces);
  if (pool != kNoPool) return result;  // private pools hold no block of ours
  for (c10::DeviceIndex device = 0; device < device_count_.load(); ++device) {
    LedgerOf(device).AppendSegments(device, &result.segments);
  }
  if (include_traces) trace_.MergeInto(&result.device_traces);
  return result;
}

bool SpillwayAllocator::isHistoryEnabled() { return native_->isHistoryEnabled(); }

void SpillwayAllocator::recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t max_entries,
                                      torch_cuda::RecordContext when, bool clear,
                                      const std::vector<std::string>& skip_actions) {
  native_.recordHistory(enabled, recorder, max_entries, when, clear, skip_actions);
  trace_.Configure(enabled, recorder, max_entries, when, clear, skip_actions);
}

void SpillwayAllocator::pushCompileContext(std::string& text) {
  trace_.PushCompileContext(text);
  native_.pushCompileContext(text);
}

void SpillwayAllocator::popCompileContext() {
  native_.popCompileContext();
  trace_.PopCompileContext();
}

TraceLog::Context SpillwayAllocator::ContextOfOurs(const void* pointer) {
  for (c10::DeviceIndex device = 0; device < device_count_.load(); ++device) {
    if (auto block = LedgerOf(device).Find(const_cast<void*>(pointer))) return block->context;
  }
  return nullptr;
}

void SpillwayAllocator::RecordForOurs(TraceAction action, const void* pointer, const std::string& metadata) {
  for (c10::DeviceIndex device = 0; device < device_count_.load(); ++device) {
    const auto block = LedgerOf(device).Find(const_cast<void*>(pointer));
    if (!block) continue;
    const TraceLog::Context stack = trace_.Gather(torch_cuda::RecordContext::ALLOC);
    trace_.Record(action, device, reinterpret_cast<size_t>(pointer), block->requested, block->stream, stack,
                  metadata);
  }
}

void SpillwayAllocator::attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) {
  native_->attachOutOfMemoryObserver(observer);
  os::MutexLock lock(&mu_);
  observers_.push_back(std::move(observer));
}

void SpillwayAllocator::attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) {
  native_->attachAllocatorTraceTracker(tracker);
  trace_.AddTracker(std::move(tracker));
}

void SpillwayAllocator::ReportNativeFrees() {
  try {
    instance_->native_->attachAllocatorTraceTracker(
        [](const torch_cuda::TraceEntry& event) { instance_->RecordNativeEvent(event); });
  } catch (const std::exception&) {  // inside a driver call: blocks stay on the GPU longer than they need to
  }
}

// Called with native's lock held. When native frees the memory, the work of other streams on it is over.
// Graphs may use the memory of a private pool after it was freed.
void SpillwayAllocator::RecordNativeEvent(const torch_cuda::TraceEntry& event) const {
  if (event.action_ != TraceAction::FREE_COMPLETED || !IsOutsidePools(event)) return;
  if (fork_.InChild()) return;
  (void)api_->memory_freed(event.device_, reinterpret_cast<const void*>(event.addr_), event.size_,
                           event.stream_);
}

// PyTorch compares a `backend:` token with the name when it parses its variable strictly. install.cc has that
// done before the swap, and tokens of ours never reach the parser.
std::string SpillwayAllocator::name() { return "spillway"; }

}  // namespace spillway::integration
