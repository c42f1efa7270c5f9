// The page of `spillway simulate --sweep --html`: charts, the table and the options in one file that needs nothing else,
// no network and no script. The rows are also in it as JSON, as --json prints them.

#ifndef SPILLWAY_INTEGRATION_CLI_SWEEP_PAGE_H_
#define SPILLWAY_INTEGRATION_CLI_SWEEP_PAGE_H_

#include <string>
#include <vector>

#include "integration/cli/simulate.h"
#include "integration/cli/sweep.h"

namespace spillway::integration {

std::string SweepPage(const SimulateOptions& options, const std::vector<SweepRow>& rows);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SWEEP_PAGE_H_
