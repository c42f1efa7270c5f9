// The lines about one spill directory in the metrics, the summary and Prometheus' text. MetricsJson, Summary
// and PrometheusText call it for each directory. It reads a copy of the store's statistics, on any thread; no
// call fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_DIRECTORY_METRICS_H_
#define SPILLWAY_INTEGRATION_REPORT_DIRECTORY_METRICS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "io/store/spill_store.h"

namespace spillway::integration {

// TB (10^12 bytes) that a day of writing at the mean rate so far has, as drives are rated. `seconds`: of the
// run; 0 where it has not begun.
double WrittenTbPerDay(const io::DirectoryStats& directory, double seconds);

// The directory's traffic, and the state of its drive: the keys of `directories` in docs/metrics.md.
nlohmann::ordered_json DirectoryJson(const io::DirectoryStats& directory, double seconds);

// "; /nvme0: 3.40 TB written a day, failed transfers: 3, closed now: it does not answer"; values of 0 are
// left out. "" for a directory that did nothing and had no trouble.
std::string DirectoryText(const io::DirectoryStats& directory, double seconds);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_DIRECTORY_METRICS_H_
