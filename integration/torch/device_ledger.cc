#include "integration/torch/device_ledger.h"

#include <algorithm>
#include <utility>

namespace spillway::integration {

void DeviceLedger::Add(void* pointer, LedgerBlock block, NativeStats native, size_t reserved,
                       size_t reserved_peak) {
  used_.store(true, std::memory_order_relaxed);
  DeviceStatsMerge::NativeTotal before;
  {
    os::MutexLock lock(&mu_);
    allocated_ += block.counted;
    reserved_ = reserved;
    stats_.OnAllocate(block.requested, block.counted);
    stats_.SetReserved(reserved, reserved_peak);
    live_.insert_or_assign(pointer, std::move(block));
    if (!stats_.PeaksMayHaveRisen()) return;
    before = stats_.native_total();
  }
  RefreshPeaks(before, native);
}

// Native is asked without our lock.
void DeviceLedger::RefreshPeaks(DeviceStatsMerge::NativeTotal before, NativeStats native) {
  const Stats stats = native();
  os::MutexLock lock(&mu_);
  stats_.RecordPeaks(stats, before);
}

std::optional<LedgerBlock> DeviceLedger::Remove(void* pointer) {
  os::MutexLock lock(&mu_);
  auto found = live_.find(pointer);
  if (found == live_.end()) return std::nullopt;
  LedgerBlock block = std::move(found->second);
  live_.erase(found);
  allocated_ -= block.counted;
  stats_.OnFree(block.requested, block.counted);
  return block;
}

std::optional<LedgerBlock> DeviceLedger::Find(void* pointer) const {
  os::MutexLock lock(&mu_);
  auto found = live_.find(pointer);
  if (found == live_.end()) return std::nullopt;
  return found->second;
}

void DeviceLedger::RecordNative(size_t bytes, NativeStats native) {
  DeviceStatsMerge::NativeTotal before;
  {
    os::MutexLock lock(&mu_);
    stats_.OnNative(bytes);
    if (!stats_.PeaksMayHaveRisen()) return;
    before = stats_.native_total();
  }
  RefreshPeaks(before, native);
}

DeviceLedger::Stats DeviceLedger::Merge(Stats native, size_t reserved, size_t reserved_peak) {
  os::MutexLock lock(&mu_);
  reserved_ = reserved;
  stats_.SetReserved(reserved, reserved_peak);
  return stats_.Merge(std::move(native));
}

void DeviceLedger::ResetAccumulated() {
  os::MutexLock lock(&mu_);
  stats_.ResetAccumulated();
}

void DeviceLedger::ResetPeaks(const Stats& native) {
  os::MutexLock lock(&mu_);
  stats_.ResetPeaks(native);
}

void DeviceLedger::RecordRetry() {
  os::MutexLock lock(&mu_);
  stats_.OnRetry();
}

void DeviceLedger::RecordOutOfMemory() {
  os::MutexLock lock(&mu_);
  stats_.OnOutOfMemory();
}

size_t DeviceLedger::allocated_bytes() const {
  os::MutexLock lock(&mu_);
  return allocated_;
}

size_t DeviceLedger::reserved_bytes() const {
  os::MutexLock lock(&mu_);
  return reserved_;
}

void DeviceLedger::AppendSegments(c10::DeviceIndex device,
                                  std::vector<torch_cuda::SegmentInfo>* segments) const {
  const size_t first = segments->size();
  {
    os::MutexLock lock(&mu_);
    for (const auto& [pointer, block] : live_) {
      torch_cuda::SegmentInfo segment;
      segment.device = device;
      segment.address = reinterpret_cast<size_t>(pointer);
      segment.total_size = block.counted;
      segment.requested_size = block.requested;
      segment.allocated_size = block.counted;
      segment.active_size = block.counted;
      segment.stream = static_cast<cudaStream_t>(block.stream);
      segment.is_large = true;
      segment.context_when_allocated = block.context;
      torch_cuda::BlockInfo info;
      info.size = block.counted;
      info.requested_size = block.requested;
      info.allocated = true;
      info.active = true;
      info.context_when_allocated = block.context;
      segment.blocks.push_back(std::move(info));
      segments->push_back(std::move(segment));
    }
  }
  std::sort(segments->begin() + static_cast<std::ptrdiff_t>(first), segments->end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
}

}  // namespace spillway::integration
