// `spillway run [options] -- COMMAND...`: the options are the settings of docs/environment.md. They are
// checked, with our variables and the keys inside PyTorch's, and passed on as variables. The command then
// takes this process's place, with the preload in front. One thread. It returns only if something fails, with
// a line and an exit status, or for the page of a run.

#ifndef SPILLWAY_INTEGRATION_CLI_JOB_RUN_H_
#define SPILLWAY_INTEGRATION_CLI_JOB_RUN_H_

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace spillway::integration {

struct RunOptions {
  std::map<std::string, std::string> settings;  // by name, as the options give them
  std::vector<char*> command;     // the words as they were given, and a null pointer; empty: none
  std::string library_directory;  // folder of libspillway.so
};

// Adds the subcommand. `options` must live until the command line has been parsed.
CLI::App* AddRun(CLI::App* app, RunOptions* options);

// Takes the command of `spillway run` out of the arguments: everything behind "--", or from the first word on
// that is neither an option nor an option's value. Returns how many arguments are left for the parser, which
// would split a word such as "[0,1]". All of them are left for another subcommand.
int TakeCommand(const CLI::App& run, int argc, char** argv, RunOptions* options);

// Replaces this process by the command with the preload in front, and returns only if that fails. If a page
// is to be made of the run, runs the command as a child and returns its status.
int Run(RunOptions options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_JOB_RUN_H_
