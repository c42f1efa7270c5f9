#include "integration/report/time_series.h"

#include <algorithm>

namespace spillway::integration {

TimeSeries::TimeSeries(size_t figures, Merge merge, double every_seconds, size_t most)
    : figures_(figures), merge_(merge), most_(most), every_(every_seconds), values_(figures * most) {}

void TimeSeries::Add(double seconds, std::span<const uint64_t> values) {
  while (seconds >= every_ * static_cast<double>(most_)) Halve();
  const auto interval = static_cast<size_t>(std::max(0.0, seconds) / every_);
  for (; size_ <= interval; ++size_) {
    for (size_t figure = 0; figure < figures_; ++figure) {
      const bool keeps = merge_ == Merge::kMaximum && size_ > 0 && size_ < interval;
      values_[size_ * figures_ + figure] = keeps ? at(figure, size_ - 1) : 0;
    }
  }
  for (size_t figure = 0; figure < figures_; ++figure) {
    uint64_t& value = values_[interval * figures_ + figure];
    value = merge_ == Merge::kSum ? value + values[figure] : std::max(value, values[figure]);
  }
}

void TimeSeries::Halve() {
  every_ *= 2;
  for (size_t interval = 0; interval < size_; ++interval) {
    for (size_t figure = 0; figure < figures_; ++figure) {
      const uint64_t value = at(figure, interval);
      uint64_t& merged = values_[interval / 2 * figures_ + figure];
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
