// The page of `spillway simulate --sweep --html`, and of `spillway estimate --sweep`: charts, the table and
// the options in one file that needs no network and no script. Its element `data` has the rows as --json
// prints them. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_SWEEP_PAGE_H_
#define SPILLWAY_INTEGRATION_CLI_SWEEP_PAGE_H_

#include <string>
#include <vector>

#include "integration/cli/simulation_run.h"
#include "integration/cli/sweep.h"

namespace spillway::integration {

// `options`: as the command line had them; each row says what it changes. A section for each run of rows of
// one option.
std::string SweepPage(const SimulateOptions& options, const std::vector<SweepRow>& rows);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SWEEP_PAGE_H_
