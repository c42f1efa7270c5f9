// Metrics: the engine's counts and measurements, as text for people and as JSON for programs. The reporter
// calls it for the summary, the status line and the metrics file, the C ABI for spillway.stats(). Pure
// functions of statistics: any thread, nothing fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_METRICS_H_
#define SPILLWAY_INTEGRATION_REPORT_METRICS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/residency/residency.h"
#include "integration/report/iteration_meter.h"
#include "integration/report/metric_rows.h"
#include "integration/report/observation.h"
#include "integration/report/pause_metrics.h"
#include "io/os/wait.h"
#include "io/store/spill_store.h"

namespace spillway::integration {

// The metrics of one device, since the first block.
struct DeviceMetrics {
  int device = 0;
  allocator::ResidencyStats stats;
#define DEVICE_METRIC(name, ...) uint64_t name = 0;
#include "integration/report/job_metrics.def"
  IterationForecast forecast;                 // as of now; what is reported is that of `steady`
  SteadyIterations steady;                    // set by the reporter
  std::optional<ObservedIteration> observed;  // SPILLWAY=observe
};

// The spill files of the process, for all devices.
struct DiskMetrics {
#define DISK_METRIC(name, ...) uint64_t name = 0;
#define BUDGET_METRIC(name, ...) uint64_t name = 0;
#include "integration/report/job_metrics.def"
  std::vector<io::DirectoryStats> directories{};
};

struct Metrics {
  std::vector<DeviceMetrics> devices;
  PauseMetrics pause;
  DiskMetrics disk;
#define PROCESS_METRIC(name, ...) uint64_t name = 0;
#include "integration/report/job_metrics.def"
  std::array<os::WaitList::Totals, static_cast<size_t>(os::WaitKind::kCount)> waits = {};  // by kind
  std::string evictions_ended;       // the call that ended them, as text; empty: they go on
  std::string waits_now;             // those of a second and longer, as text; empty: none
  double seconds = 0;                // since the first block
  double iterations_per_second = 0;  // lately; 0: not known
};

// The sum over devices. Peaks and budgets are added, too: each device has its own memory.
allocator::ResidencyStats Total(const std::vector<DeviceMetrics>& devices);

// Seconds for which launching threads waited, whatever for.
double StallSeconds(const allocator::ResidencyStats& stats);
// Seconds in which a GPU had nothing to do, whatever for.
double LostSeconds(const allocator::ResidencyStats& stats);

// One JSON object: totals at the top level, "devices" a list with the same keys. Bytes, counts, seconds.
std::string MetricsJson(const Metrics& metrics);

// "peak 3.10 GiB of a budget of 2.00 GiB; ..." without the prefix; empty when nothing of ours was ever used.
std::string Summary(const Metrics& metrics);

// A line about the iteration of each device that moved bytes and whose iterations are known well enough;
// without the prefix.
std::vector<std::string> IterationLines(const Metrics& metrics);

// The bound as a percentage of the measured iteration, at most 100. Times of launches are means of samples,
// so an iteration may seem a little faster than its bound. None when either is not known, or they contradict
// each other.
std::optional<double> PercentOfBound(const DeviceMetrics& device);

// Returns the line that SIGUSR1 asks for, without the prefix: "status: on the GPU 1.20 GiB of 2.00 GiB, host
// ...".
std::string StatusText(const Metrics& metrics);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_METRICS_H_
