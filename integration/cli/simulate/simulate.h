// `spillway simulate`: plans a recorded iteration for a machine that need not exist, executes the plan in the
// simulator and prints how good it is. Reads the trace's files and writes the schedule, the converted trace
// and the sweep's page; simulation_run does one run. One thread. A failure costs a line and an exit status.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATE_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATE_H_

#include <CLI/CLI.hpp>

#include "integration/cli/simulate/simulation_run.h"

namespace spillway::integration {

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddSimulate(CLI::App* app, SimulateOptions* options);

// Prints the result, or one line on standard error. Returns the exit status: 0; 1 if the workload cannot run
// on that machine; 2 for wrong use or an unreadable file.
int Simulate(const SimulateOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATE_H_
