// `spillway characterize`: the use of memory in a trace, as text and as JSON. docs/simulate.md describes the
// output; policy/offline/characterization finds the figures. One thread. Wrong use, or a trace that cannot be
// read, costs a line and an exit status.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_CHARACTERIZE_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_CHARACTERIZE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace spillway::integration {

struct CharacterizeOptions {
  std::string trace;
  std::string rate = "6.5e9";  // of one fast SSD, as in TERAIO's study
  bool json = false;
};

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddCharacterize(CLI::App* app, CharacterizeOptions* options);

// Returns the exit status: 0; 2 for wrong use or a trace that cannot be read.
int CharacterizeTrace(const CharacterizeOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_CHARACTERIZE_H_
