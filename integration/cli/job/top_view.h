// The display of `spillway top`: metrics that jobs answered with, twice, as lines of text. A row stands for
// each process, since each rank is one; the last lines of a single job are below it. Pure; no call fails: a
// metric that a job did not report is a dash.

#ifndef SPILLWAY_INTEGRATION_CLI_JOB_TOP_VIEW_H_
#define SPILLWAY_INTEGRATION_CLI_JOB_TOP_VIEW_H_

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace spillway::integration {

// One job's answers to "status", the later one and one before it; null if it has not answered.
struct TopJob {
  pid_t pid = 0;
  nlohmann::json now, before;
  std::string problem;  // why it did not answer now; empty if it did
};

// `width`: columns that a line may have; commands are cut to it.
std::string TopText(const std::vector<TopJob>& jobs, size_t width);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_JOB_TOP_VIEW_H_
