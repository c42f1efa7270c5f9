// What `spillway simulate` found out, as text and as JSON.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_REPORT_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_REPORT_H_

#include <string>

#include "policy/execution.h"
#include "policy/quick_bound.h"

namespace spillway::integration {

struct SimulateResult {
  policy::Execution execution;
  policy::QuickBound quick_bound;
  policy::Nanos bound = 0;  // of the kind asked for
  std::string bound_kind = "quick";
  double bound_s = 0;  // CPU seconds
  std::string policy;
  double plan_first_s = 0, plan_best_s = 0;  // CPU seconds
  uint32_t trials = 0;
  int64_t peak_live_bytes = 0;

  double PercentOfBound() const;
};

std::string ReportText(const SimulateResult& result);
std::string ReportJson(const SimulateResult& result);

// One row per value of a sweep, and the same as a chart in a page that needs nothing else.
struct SweepPoint {
  std::string setting;  // gpu-memory=16GiB
  bool fits = false;
  double percent_of_ideal = 0, percent_of_bound = 0;
  double gigabytes_in = 0, gigabytes_out = 0;
};
std::string SweepText(const std::vector<SweepPoint>& points);
std::string SweepHtml(const std::vector<SweepPoint>& points);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_REPORT_H_
