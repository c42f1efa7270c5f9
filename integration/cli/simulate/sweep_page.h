// The page of `spillway simulate --sweep --html`, and of `spillway estimate --sweep`, as a model that
// report_page shows: charts and a table for each sweep, and the options. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_SWEEP_PAGE_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_SWEEP_PAGE_H_

#include <vector>

#include "integration/cli/page/report_model.h"
#include "integration/cli/simulate/simulation_run.h"
#include "integration/cli/simulate/sweep.h"

namespace spillway::integration {

// `options`: as the command line had them; each row has its own change. Rows of one option make a section.
ReportModel SweepModel(const SimulateOptions& options, const std::vector<SweepRow>& rows);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_SWEEP_PAGE_H_
