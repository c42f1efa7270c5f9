// `spillway pause PID...` and `spillway resume PID...`: make running jobs give up their GPU memory, and take
// it back. The jobs are asked by their sockets (JobSocket) and do it themselves (JobPause); the command waits
// for the end and prints a line for each. On the program's only thread.

#ifndef SPILLWAY_INTEGRATION_CLI_JOB_PAUSE_H_
#define SPILLWAY_INTEGRATION_CLI_JOB_PAUSE_H_

#include <sys/types.h>

#include <CLI/CLI.hpp>
#include <vector>

namespace spillway::integration {

struct PauseOptions {
  std::vector<pid_t> pids;
  double timeout = 600;  // seconds for all of them
};

CLI::App* AddPause(CLI::App* app, PauseOptions* options);
CLI::App* AddResume(CLI::App* app, PauseOptions* options);

// Return 0 if all jobs are paused, or run again; 1 if one does not exist, does not answer, or cannot be
// paused now, though the others are; 2 for wrong use.
int PauseJobs(const PauseOptions& options);
int ResumeJobs(const PauseOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_JOB_PAUSE_H_
