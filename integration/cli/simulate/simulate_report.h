// The result of `spillway simulate` for one machine, as text and as JSON. docs/simulate.md describes each
// line and key; the keys are an interface that scripts read. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATE_REPORT_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATE_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "integration/cli/simulate/simulation_run.h"

namespace spillway::integration {

std::string ReportText(const SimulateResult& result);
std::string ReportJson(const SimulateOptions& options, const SimulateResult& result);

// Return its parts: the keys of one run, and the options as given or by default.
nlohmann::json ResultJson(const SimulateResult& result);
nlohmann::json OptionsJson(const SimulateOptions& options);
// Returns JSON as text. File names in it that are no UTF-8 are replaced, not refused.
std::string DumpJson(const nlohmann::json& json);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATE_REPORT_H_
