// TimeSeries: several figures over the time of a run, in intervals of equal length from time 0 on. There are
// at most so many intervals: when they are full, neighbours become one and the length doubles. Figures of
// what there is are merged by their maximum, figures of what has moved by their sum. The reporter's thread
// alone uses it. Nothing fails; all memory is taken at the start.

#ifndef SPILLWAY_INTEGRATION_REPORT_TIME_SERIES_H_
#define SPILLWAY_INTEGRATION_REPORT_TIME_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spillway::integration {

enum class Merge : uint8_t { kMaximum, kSum };

class TimeSeries {
 public:
  // `figures`: how many at each time. `most`: intervals, even and at least 2.
  TimeSeries(size_t figures, Merge merge, double every_seconds, size_t most);

  // `values`: one of each figure. `seconds` never falls. Intervals without an Add keep the values before
  // (maximum), or get their part (sum): what has moved since the last Add moved at an even rate. Nobody knows
  // when the first Add's has moved: it is of its own interval.
  void Add(double seconds, std::span<const uint64_t> values);

  double every_seconds() const { return every_; }
  // Intervals up to the last Add.
  size_t size() const { return size_; }
  uint64_t at(size_t figure, size_t interval) const { return values_[interval * figures_ + figure]; }

 private:
  size_t IntervalOf(double seconds) const;
  void Halve();
  void Spread(double seconds, size_t figure, uint64_t value);

  const size_t figures_;
  const Merge merge_;
  const size_t most_;
  double every_;
  size_t size_ = 0;
  double last_ = 0;               // time of the last Add
  std::vector<uint64_t> values_;  // by interval, then figure
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_TIME_SERIES_H_
