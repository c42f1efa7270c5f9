// What `spillway simulate` found out about one machine, as text and as JSON.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_REPORT_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_REPORT_H_

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "policy/bound/quick_bound.h"
#include "policy/simulator/execution.h"

namespace spillway::integration {

struct SimulateOptions;

struct SimulateResult {
  policy::Execution execution;
  policy::QuickBound quick_bound;
  policy::Nanos bound = 0;  // of the kind asked for; with noise, of the kernels as long as they took
  std::string bound_kind = "quick";
  double bound_s = 0;  // CPU seconds
  std::string policy;
  double plan_first_s = 0, plan_best_s = 0;  // CPU seconds
  uint32_t trials = 0;
  size_t kernels = 0, tensors = 0;  // of the trace
  int64_t peak_live_bytes = 0;

  double PercentOfBound() const;
};

std::string ReportText(const SimulateResult& result);
std::string ReportJson(const SimulateOptions& options, const SimulateResult& result);

// The parts of it: the keys of one run, and the options as given or by default.
nlohmann::json ResultJson(const SimulateResult& result);
nlohmann::json OptionsJson(const SimulateOptions& options);
// Text of any file names in it that are no UTF-8 is replaced, not refused.
std::string DumpJson(const nlohmann::json& json);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_REPORT_H_
