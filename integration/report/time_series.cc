#include "integration/report/time_series.h"

#include <algorithm>

namespace spillway::integration {

TimeSeries::TimeSeries(size_t metrics, Merge merge, double every_seconds, size_t most)
    : metrics_(metrics), merge_(merge), most_(most), every_(every_seconds), values_(metrics * most) {}

size_t TimeSeries::IntervalOf(double seconds) const {
  return static_cast<size_t>(std::max(0.0, seconds) / every_);
}

void TimeSeries::Add(double seconds, std::span<const uint64_t> values) {
  while (seconds >= every_ * static_cast<double>(most_)) Halve();
  const size_t interval = IntervalOf(seconds);
  if (size_ == 0) last_ = seconds;
  for (; size_ <= interval; ++size_) {
    for (size_t figure = 0; figure < metrics_; ++figure) {
      const bool keeps = merge_ == Merge::kMaximum && size_ > 0 && size_ < interval;
      values_[size_ * metrics_ + figure] = keeps ? at(figure, size_ - 1) : 0;
    }
  }
  for (size_t figure = 0; figure < metrics_; ++figure) {
    uint64_t& value = values_[interval * metrics_ + figure];
    if (merge_ == Merge::kSum)
      Spread(seconds, figure, values[figure]);
    else
      value = std::max(value, values[figure]);
  }
  last_ = std::max(last_, seconds);
}

// Gives each interval what its part of the time since the last Add contributes to the running total. The
// parts therefore add up to `value`, however they are rounded.
void TimeSeries::Spread(double seconds, size_t figure, uint64_t value) {
  const size_t end = IntervalOf(seconds);
  uint64_t before = 0;
  for (size_t interval = IntervalOf(last_); interval < end; ++interval) {
    const double part = (static_cast<double>(interval + 1) * every_ - last_) / (seconds - last_);
    const auto until =
        std::min(value, static_cast<uint64_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(value)));
    values_[interval * metrics_ + figure] += until - before;
    before = until;
  }
  values_[end * metrics_ + figure] += value - before;
}

void TimeSeries::Halve() {
  every_ *= 2;
  for (size_t interval = 0; interval < size_; ++interval) {
    for (size_t figure = 0; figure < metrics_; ++figure) {
      const uint64_t value = at(figure, interval);
      uint64_t& merged = values_[interval / 2 * metrics_ + figure];
      if (interval % 2 == 0) {
        merged = value;
      } else {
        merged = merge_ == Merge::kSum ? merged + value : std::max(merged, value);
      }
    }
  }
  size_ = (size_ + 1) / 2;
}

}  // namespace spillway::integration
