// TimeSeries: several values over the time of a run, in intervals of equal length from time 0 on. The number
// of intervals is limited: when all are full, each two neighbors become one and the length doubles. Levels
// are merged by their maximum, amounts by their sum. Only the reporter's thread uses it. No call fails; all
// memory is taken at the start.

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
  // `figures`: the number of figures. `most`: the number of intervals, even and at least 2.
  TimeSeries(size_t metrics, Merge merge, double every_seconds, size_t most);

  // `values` has one value of each figure. `seconds` never falls. Intervals without an Add keep the values
  // before them (maximum), or get their part (sum): the amount since the last Add counts as moved at an even
  // rate. The first Add's amount has no known beginning, so it belongs to its own interval.
  void Add(double seconds, std::span<const uint64_t> values);

  double every_seconds() const { return every_; }
  // Returns the number of intervals up to the last Add.
  size_t size() const { return size_; }
  uint64_t at(size_t figure, size_t interval) const { return values_[interval * metrics_ + figure]; }

 private:
  size_t IntervalOf(double seconds) const;
  void Halve();
  void Spread(double seconds, size_t figure, uint64_t value);

  const size_t metrics_;
  const Merge merge_;
  const size_t most_;
  double every_;
  size_t size_ = 0;
  double last_ = 0;               // time of the last Add
  std::vector<uint64_t> values_;  // by interval, then figure
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_TIME_SERIES_H_
