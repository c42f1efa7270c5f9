// Removes Prometheus files whose process has ended: node_exporter would go on to show their metrics. A
// process that writes such files removes, when it starts, those that others of the same SPILLWAY_PROMETHEUS
// have left. The reporter's thread calls it, since a folder may lie on a slow drive. No call fails: a file
// that cannot be removed stays.

#ifndef SPILLWAY_INTEGRATION_REPORT_STALE_METRICS_H_
#define SPILLWAY_INTEGRATION_REPORT_STALE_METRICS_H_

#include <ctime>
#include <functional>
#include <string>

namespace spillway::integration {

// A file that lives is written every 10 s. One of this age may have no process, and of the other age it has
// none: its number is another process's by then.
inline constexpr int kStaleSeconds = 60;
inline constexpr int kForgottenSeconds = 3600;

// Removes files that `pattern` (with %p, %r and %h; without them, of further ranks) may have named on this
// host, that begin as PrometheusText does, belong to this user, and have not been written for kStaleSeconds,
// if `is_there` denies the process that they name, or for kForgottenSeconds. `now`: seconds since 1970.
// Returns how many. A pattern whose folder differs between processes removes nothing.
int RemoveStaleMetrics(const std::string& pattern, std::time_t now,
                       const std::function<bool(int pid)>& is_there);

// Whether there is such a process, as far as this one can know.
bool ProcessIsThere(int pid);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_STALE_METRICS_H_
