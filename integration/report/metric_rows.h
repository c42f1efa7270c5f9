// The rows of counters.def for reports: each metric of a device's residency with its names in JSON and in
// Prometheus, its meaning, and its place in ResidencyStats. For metrics, iteration_meter and prometheus. Data
// alone; any thread.

#ifndef SPILLWAY_INTEGRATION_REPORT_METRIC_ROWS_H_
#define SPILLWAY_INTEGRATION_REPORT_METRIC_ROWS_H_

#include <cstdint>
#include <string_view>

#include "allocator/residency/residency.h"

namespace spillway::integration {

enum class RowShare : uint8_t { kTotal, kPerIteration };  // whether a recurring iteration gets its share
enum class RowUnit : uint8_t { kPlain, kNanos };          // of the member; reports say seconds

struct FigureRow {
  std::string_view key;  // "outer.inner" for a key of an inner object
  uint64_t allocator::ResidencyStats::*member;
  RowUnit unit;
  RowShare share;
  std::string_view metric;  // "name" or "name label=value"; empty: Prometheus has none
  std::string_view help;
};

// In the order of all reports; the rows of one metric stand together.
inline constexpr FigureRow kFigureRows[] = {
#define TOTAL RowShare::kTotal
#define PER_ITERATION RowShare::kPerIteration
#define FIGURE_MEMBER(name) &allocator::ResidencyStats::name, RowUnit::kPlain
#define GAUGE(name, metric, help) {#name, FIGURE_MEMBER(name), TOTAL, metric, help},
#define MACHINE_GAUGE(name, metric, help) {#name, FIGURE_MEMBER(name), TOTAL, metric, help},
#define COUNTER(name, share, metric, help) {#name, FIGURE_MEMBER(name), share, metric, help},
#define SUM(name, share, metric, help) {#name, FIGURE_MEMBER(name), share, metric, help},
#define SECONDS(name, key, share, metric, help) \
  {key, &allocator::ResidencyStats::name, RowUnit::kNanos, share, metric, help},
#include "allocator/residency/state/counters.def"
#undef FIGURE_MEMBER
#undef PER_ITERATION
#undef TOTAL
};

// Times are kept in nanoseconds, and reported in seconds everywhere.
inline double SecondsOf(uint64_t nanos) { return static_cast<double>(nanos) / 1e9; }

// Words of the metrics that several rows have.
struct MetricText {
  std::string_view metric, help;
};
inline constexpr MetricText kMetricTexts[] = {
#define METRIC(metric, help) {metric, help},
#include "allocator/residency/state/counters.def"
#define METRIC(metric, help) {metric, help},
#include "integration/report/job_metrics.def"
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_METRIC_ROWS_H_
