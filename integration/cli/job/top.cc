#include "integration/cli/job/top.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/job/top_view.h"
#include "integration/engine/job_socket.h"

namespace spillway::integration {
namespace {

constexpr int kNoJob = 1;
constexpr auto kPatience = std::chrono::milliseconds(1500);  // a job answers once a second, or sooner
constexpr double kShortest = 0.1, kLongest = 3600;
constexpr char kClear[] = "\033[H\033[2J";
constexpr size_t kWidthOfFiles = 160;

size_t Width() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kWidthOfFiles;
}

// Asks the jobs, and keeps their last answers.
class Jobs {
 public:
  explicit Jobs(std::vector<pid_t> pids) : pids_(std::move(pids)) {}

  // Returns the jobs that are there. A job that has ended is not, unless it was named and never answered.
  std::vector<TopJob> Scan() {
    std::vector<TopJob> jobs;
    for (const pid_t pid : pids_.empty() ? JobsIn(folder_) : pids_) {
      TopJob job;
      job.pid = pid;
      const absl::StatusOr<std::string> answer = AskJob(folder_, pid, "status", kPatience);
      if (absl::IsNotFound(answer.status())) {
        missing_ = std::string(answer.status().message());
        continue;
      }
      if (answer.ok()) job.now = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
      if (!answer.ok()) {
        job.problem = std::string(answer.status().message());
      } else if (!job.now.is_object() || !job.now.contains("figures")) {
        job.problem = "its answer is not of this version";
      }
      job.before = last_[pid];
      if (job.problem.empty()) last_[pid] = job.now;
      jobs.push_back(std::move(job));
    }
    return jobs;
  }
  const std::string& missing() const { return missing_; }

 private:
  const std::string folder_ = JobSocketFolder();
  const std::vector<pid_t> pids_;
  std::map<pid_t, nlohmann::json> last_;
  std::string missing_;
};

int NoJob(const TopOptions& options, const Jobs& jobs) {
  std::fprintf(stderr, "spillway: %s\n",
               options.pids.empty()
                   ? "no job of yours runs under Spillway here; a job is listed from its first block on"
                   : jobs.missing().c_str());
  return kNoJob;
}

}  // namespace

CLI::App* AddTop(CLI::App* app, TopOptions* options) {
  CLI::App* const command =
      app->add_subcommand("top", "Show the state of running jobs, a row for each process");
  command->add_option("PID", options->pids, "Processes (default: all jobs of this user)");
  command->add_flag("--once", options->once,
                    "Print once, without terminal codes (default if the output is no terminal)");
  command->add_flag("--json", options->json, "Print the answers of the jobs once, as a list");
  command->add_option("--interval", options->interval, "Seconds between two updates")->capture_default_str();
  return command;
}

int Top(const TopOptions& options) {
  if (!(options.interval >= kShortest && options.interval <= kLongest))
    return Refuse(absl::InvalidArgumentError(
        absl::StrCat("--interval ", options.interval, " is invalid; expected: seconds from 0.1 to 3600")));
  Jobs jobs(options.pids);
  std::vector<TopJob> seen = jobs.Scan();
  if (seen.empty()) return NoJob(options, jobs);
  if (options.json) {
    nlohmann::json answers = nlohmann::json::array();
    for (const TopJob& job : seen) answers.push_back(job.now);
    std::printf("%s\n", answers.dump(2).c_str());
    return 0;
  }
  const bool once = options.once || isatty(STDOUT_FILENO) == 0;
  do {  // rates need two samples
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
    std::vector<TopJob> now = jobs.Scan();
    if (now.empty()) break;
    seen = std::move(now);
    if (!once) std::printf("%s%s", kClear, TopText(seen, Width()).c_str());
    std::fflush(stdout);
  } while (!once);
  if (once) std::printf("%s", TopText(seen, Width()).c_str());
  return 0;
}

}  // namespace spillway::integration
