// An estimate as text and as JSON, for `spillway estimate`: the peak and its parts, whether it fits, and
// times from the fast end of the machine to the slow one. docs/estimate.md describes each line and key; the
// keys are an interface that scripts read. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_REPORT_H_
#define SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_REPORT_H_

#include <string>

#include "integration/cli/estimate/estimate_run.h"

namespace spillway::integration {

std::string EstimateText(const EstimateOptions& options, const Estimate& estimate);
std::string EstimateJson(const EstimateOptions& options, const Estimate& estimate);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_REPORT_H_
