// `spillway describe`: the command line in the form that a shell completes by, or as a man page, made from
// the subcommands and options as they are, so there is no second list. The build writes these files for
// `cmake --install`. Also prints the settings that a job would find here, each with its origin. One thread.
// An unknown form is wrong use.

#ifndef SPILLWAY_INTEGRATION_CLI_DESCRIBE_H_
#define SPILLWAY_INTEGRATION_CLI_DESCRIBE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace spillway::integration {

struct DescribeOptions {
  std::string form;  // bash, zsh, fish, man or settings
};

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddDescribe(CLI::App* app, DescribeOptions* options);

// `app`: the whole command line. Returns the exit status: 0; 2 for an unknown form, and for settings that no
// job would take.
int Describe(const CLI::App& app, const DescribeOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DESCRIBE_H_
