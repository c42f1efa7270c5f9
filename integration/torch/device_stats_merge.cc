#include "integration/torch/device_stats_merge.h"

#include <algorithm>

namespace spillway::integration {
namespace {

using torch_stats::Stat;
using torch_stats::StatArray;
using torch_stats::StatType;
using Stats = DeviceStatsMerge::Stats;

// All blocks of ours are large: they count in the aggregate and in the large pool.
constexpr StatType kOurTypes[] = {StatType::AGGREGATE, StatType::LARGE_POOL};

// The figures that blocks of ours contribute to.
constexpr StatArray Stats::*kArrays[] = {
    &Stats::allocation,   &Stats::segment,        &Stats::active,          &Stats::allocated_bytes,
    &Stats::active_bytes, &Stats::reserved_bytes, &Stats::requested_bytes,
};

// The figures among them that count blocks; the others count bytes.
constexpr StatArray Stats::*kCounts[] = {&Stats::allocation, &Stats::segment, &Stats::active};
// Native takes blocks a little larger than asked for, at most twice as large while they are small.
constexpr size_t kLargestSmall = 1 << 20;

template <typename Function>
void ForEachFigure(Function function) {
  for (StatArray Stats::*array : kArrays) {
    for (StatType type : kOurTypes) function(array, static_cast<size_t>(type));
  }
}

void Increase(StatArray* array, size_t amount) {
  for (StatType type : kOurTypes) {
    Stat& stat = (*array)[static_cast<size_t>(type)];
    stat.current += static_cast<int64_t>(amount);
    stat.peak = std::max(stat.peak, stat.current);
    stat.allocated += static_cast<int64_t>(amount);
  }
}

void Decrease(StatArray* array, size_t amount) {
  for (StatType type : kOurTypes) {
    Stat& stat = (*array)[static_cast<size_t>(type)];
    stat.current -= static_cast<int64_t>(amount);
    stat.freed += static_cast<int64_t>(amount);
  }
}

}  // namespace

void DeviceStatsMerge::OnAllocate(size_t requested, size_t counted) {
  Increase(&own_.allocation, 1);
  Increase(&own_.segment, 1);
  Increase(&own_.active, 1);
  Increase(&own_.allocated_bytes, counted);
  Increase(&own_.active_bytes, counted);
  Increase(&own_.requested_bytes, requested);
}

void DeviceStatsMerge::OnFree(size_t requested, size_t counted) {
  Decrease(&own_.allocation, 1);
  Decrease(&own_.segment, 1);
  Decrease(&own_.active, 1);
  Decrease(&own_.allocated_bytes, counted);
  Decrease(&own_.active_bytes, counted);
  Decrease(&own_.requested_bytes, requested);
}

void DeviceStatsMerge::SetReserved(size_t now, size_t peak_since_start) {
  const auto before = static_cast<size_t>(own_.reserved_bytes[0].current);
  if (now > before) Increase(&own_.reserved_bytes, now - before);
  if (now < before) Decrease(&own_.reserved_bytes, before - now);
  reserved_peak_ = std::max(reserved_peak_, peak_since_start);
}

void DeviceStatsMerge::OnNative(size_t bytes) {
  if (bytes >= kLargestSmall) {
    ask_ = true;
    return;
  }
  ++native_total_.blocks;
  native_total_.bytes += static_cast<int64_t>(2 * bytes + 512);
}

bool DeviceStatsMerge::PeaksMayHaveRisen() const {
  const int64_t blocks = native_total_.blocks - native_at_.blocks;
  const int64_t bytes = native_total_.bytes - native_at_.bytes;
  bool risen = ask_ || own_.reserved_bytes[0].current > own_reserved_noted_;
  ForEachFigure([&](StatArray Stats::*array, size_t type) {
    if (array == &Stats::reserved_bytes) return;
    const bool counts = std::find(std::begin(kCounts), std::end(kCounts), array) != std::end(kCounts);
    const int64_t most =
        (native_.*array)[type].current + (own_.*array)[type].current + (counts ? blocks : bytes);
    risen = risen || most > (peaks_.*array)[type].peak;
  });
  return risen;
}

void DeviceStatsMerge::RecordPeaks(const Stats& native, NativeTotal total_before) {
  native_ = native;
  native_at_ = total_before;
  ask_ = false;
  own_reserved_noted_ = own_.reserved_bytes[0].current;
  RaisePeaks(native);
}

void DeviceStatsMerge::RaisePeaks(const Stats& native) {
  ForEachFigure([&](StatArray Stats::*array, size_t type) {
    Stat& peak = (peaks_.*array)[type];
    peak.peak = std::max(peak.peak, (native.*array)[type].current + (own_.*array)[type].current);
  });
  // Launches take chunks between two calls of the allocator. A peak that grew since the last reset was
  // reached in this interval, with about the bytes that native has now.
  if (reserved_peak_ > reserved_peak_floor_) {
    for (StatType type : kOurTypes) {
      Stat& peak = peaks_.reserved_bytes[static_cast<size_t>(type)];
      const int64_t native_now = native.reserved_bytes[static_cast<size_t>(type)].current;
      peak.peak = std::max(peak.peak, native_now + static_cast<int64_t>(reserved_peak_));
    }
  }
}

Stats DeviceStatsMerge::Merge(Stats native) {
  RaisePeaks(native);
  ForEachFigure([&](StatArray Stats::*array, size_t type) {
    Stat& stat = (native.*array)[type];
    const Stat& own = (own_.*array)[type];
    stat.current += own.current;
    stat.allocated += own.allocated;
    stat.freed += own.freed;
    stat.peak = std::max((peaks_.*array)[type].peak, stat.peak);
  });
  native.num_alloc_retries += retries_;
  native.num_ooms += ooms_;
  return native;
}

void DeviceStatsMerge::ResetAccumulated() {
  ForEachFigure([&](StatArray Stats::*array, size_t type) {
    (own_.*array)[type].allocated = 0;
    (own_.*array)[type].freed = 0;
  });
  retries_ = 0;
  ooms_ = 0;
}

void DeviceStatsMerge::ResetPeaks(const Stats& native) {
  reserved_peak_floor_ = reserved_peak_;
  ForEachFigure([&](StatArray Stats::*array, size_t type) { (peaks_.*array)[type].peak = 0; });
  RecordPeaks(native, native_total_);
}

}  // namespace spillway::integration
