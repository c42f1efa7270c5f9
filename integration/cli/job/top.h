// `spillway top`: the state of running jobs of the same user, a row for each process, renewed each second. It
// asks each by its socket (integration/engine/job_socket.h); a job never waits for it. docs/top.md describes
// the columns. One thread. If nothing runs, or a process is no job, it prints a line and returns an exit
// status.

#ifndef SPILLWAY_INTEGRATION_CLI_JOB_TOP_H_
#define SPILLWAY_INTEGRATION_CLI_JOB_TOP_H_

#include <sys/types.h>

#include <CLI/CLI.hpp>
#include <vector>

namespace spillway::integration {

struct TopOptions {
  std::vector<pid_t> pids;  // empty: all jobs
  bool once = false;        // one sample over one interval, as if standard output were no terminal
  bool json = false;        // the jobs' own answers, once
  double interval = 1;      // seconds between two samples
};

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddTop(CLI::App* app, TopOptions* options);

// Returns the exit status: 0; 1 if there is no such job; 2 for wrong use. On a terminal it goes on until it
// is interrupted, or no job is left.
int Top(const TopOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_JOB_TOP_H_
