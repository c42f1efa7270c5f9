// `spillway estimate`: the cost of training a model before there is a job to record: its peak of device
// memory, whether it fits, what would move and how long an iteration would last. One thread calls it; it
// simulates on several. A failure costs a line and an exit status.

#ifndef SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_H_
#define SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_H_

#include <CLI/CLI.hpp>

#include "integration/cli/estimate/estimate_run.h"

namespace spillway::integration {

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddEstimate(CLI::App* app, EstimateOptions* options);

// Prints the result, or one line on standard error. Returns the exit status: 0; 1 if the job does not fit
// that machine; 2 for wrong use or a file that cannot be read or written.
int RunEstimate(const EstimateOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_H_
