#include "integration/cli/report/report_run.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/status.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/page/page_file.h"
#include "integration/cli/report/report.h"
#include "integration/cli/report/report_files.h"
#include "integration/cli/report/run_files.h"
#include "integration/report/output_file.h"
#include "integration/settings/environment.h"
#include "integration/settings/node_ranks.h"

namespace spillway::integration {
namespace {

constexpr long long kNanos = 1'000'000'000;
// The signals that would have ended or moved the command, had it taken this process's place.
constexpr int kHandedOn[] = {SIGTERM,   SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM,
                             SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ, SIGPWR,  SIGIO};
// These act as they did before while pages are made: the pages may be given up.
constexpr int kGivesUp[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};

volatile std::sig_atomic_t g_child = 0;  // written before the handlers are there

// Terminals send to the whole foreground group, so these reach the command by themselves.
bool IsOfTerminal(int signal, const siginfo_t& info) {
  return info.si_code == SI_KERNEL && (signal == SIGINT || signal == SIGQUIT || signal == SIGHUP);
}

void HandOn(int signal, siginfo_t* info, void* /*context*/) {
  const int before = errno;
  if (g_child > 0 && !IsOfTerminal(signal, *info)) ::kill(g_child, signal);
  errno = before;
}

struct sigaction SetAction(int signal, const struct sigaction& action) {
  struct sigaction before = {};
  ::sigaction(signal, &action, &before);
  return before;
}

struct sigaction HandingOn() {
  struct sigaction action = {};
  action.sa_sigaction = HandOn;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  return action;
}

// Ends this process in the way in which the command ended, without a second core file.
int EndBySignal(int signal) {
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  SetAction(signal, by_default);
  ::raise(signal);
  return 128 + signal;  // the signal was blocked, or cannot end a process
}

// Has the kernel send SIGTERM to the command when this process dies; nothing would end it and nobody wait for
// it otherwise. A launcher such as torchrun can pass SIGTERM on to its workers, which SIGKILL would leave
// behind.
void EndWithParent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::raise(SIGTERM);
}

// Blocks signals until the child is there, so that those that come before wait for it.
pid_t Start(const std::vector<char*>& command, sigset_t* blocked, sigset_t* before) {
  ::sigemptyset(blocked);
  for (int signal : kHandedOn) ::sigaddset(blocked, signal);
  ::sigprocmask(SIG_BLOCK, blocked, before);
  std::fflush(nullptr);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::sigprocmask(SIG_SETMASK, before, nullptr);
  EndWithParent(self);
  ::execvp(command[0], command.data());
  std::fprintf(stderr, "spillway: cannot run %s: %s\n", command[0], std::strerror(errno));
  ::_exit(kCannotRun);
}

int WaitFor(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return kCannotRun << 8;
  }
  return status;
}

// Returns this rank under a launcher that starts each rank with a `spillway run` of its own: the others make
// pages of their ranks. None if this process has started all ranks, or there is one.
std::optional<int> OwnRank() {
  std::vector<std::string> warnings;  // the job reports them
  const NodeRanks ranks = ReadNodeRanks(EnvironmentVariable, &warnings);
  return ranks.size > 1 ? std::optional<int>(ranks.rank) : std::nullopt;
}

// Returns whether the file is another rank's. If names tell processes apart and not ranks, the file's own
// contents decide. A file that cannot be read is not another's.
bool IsAnotherRanks(const std::string& file, int rank) {
  std::ifstream stream(file);
  const auto data = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  const auto differs = [&data](const char* key, const nlohmann::json& own) {
    const auto found = data.is_object() && data.contains("job") && data["job"].is_object()
                           ? data["job"].value(key, nlohmann::json())
                           : nlohmann::json();
    return !found.is_null() && found != own;
  };
  return differs("rank", rank) || differs("host", HostName());
}

// Returns whether the files are of ranks of one job. A command may also start one job after another, and
// launchers give each rank an argument of its own.
bool AreRanksOfOneJob(const std::vector<std::string>& files) {
  const auto runs = ReadRuns(files, FilesAre::kRanks);
  if (!runs.ok()) return false;  // lines of its own page name the problem
  const std::vector<RankFile>& ranks = runs->front().ranks;
  for (auto one = ranks.begin(); one != ranks.end(); ++one) {
    if (!std::all_of(ranks.begin(), one, [&](const RankFile& it) { return RanTogether(it.data, one->data); }))
      return false;
  }
  return true;
}

void MakePages(const std::string& page, long long since_unix_ns, const std::string& library_directory) {
  const std::optional<int> rank = OwnRank();
  std::string pattern = OutputFile::WithHost(DataPathOf(page));
  if (rank) pattern = DataPathOfRank(pattern, *rank);
  std::vector<std::string> files =
      WrittenDataFiles(pattern, rank ? Whose::kOneRanks : Whose::kEveryRanks, since_unix_ns);
  if (rank) std::erase_if(files, [&](const std::string& file) { return IsAnotherRanks(file, *rank); });
  if (files.empty())
    std::fprintf(
        stderr,
        "spillway: no report: the command wrote no %s. No process of it used the GPU under Spillway to its "
        "end, or for a second before it was killed\n",
        pattern.c_str());
  const auto make = [&library_directory](std::vector<std::string> data, const std::string& page_of_it) {
    ReportOptions options;
    options.files = std::move(data);
    options.files_are = FilesAre::kRanks;
    options.output = page_of_it;
    options.library_directory = library_directory;
    const absl::Status status = WriteReportPage(options);
    if (status.ok())
      std::fprintf(stderr, "spillway: report: %s\n", options.output.c_str());
    else
      std::fprintf(stderr, "spillway: no page of %s: %s\n", options.files.front().c_str(),
                   std::string(status.message()).c_str());
  };
  for (const std::string& file : files) make({file}, PageOfDataFile(file));
  if (files.size() > 1 && AreRanksOfOneJob(files)) make(files, PageOfRanks(pattern));
}

}  // namespace

int RunAndReport(const std::vector<char*>& command, const std::string& page,
                 const std::string& library_directory) {
  if (const absl::Status status = FindDrawingLibrary(library_directory); !status.ok())
    std::fprintf(stderr, "spillway: no page will be made, only the data: %s\n",
                 std::string(status.message()).c_str());
  timespec now = {};
  // File systems take their times from a coarser clock, which is never ahead of this one.
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  sigset_t blocked, before;
  const pid_t child = Start(command, &blocked, &before);
  if (child < 0) {
    std::fprintf(stderr, "spillway: cannot start %s: %s\n", command[0], std::strerror(errno));
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return kCannotRun;
  }
  g_child = child;
  std::map<int, struct sigaction> actions;
  for (int signal : kHandedOn) actions[signal] = SetAction(signal, HandingOn());
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  const int status = WaitFor(child);
  g_child = 0;
  for (int signal : kGivesUp) SetAction(signal, actions[signal]);
  MakePages(page, now.tv_sec * kNanos + now.tv_nsec, library_directory);
  return WIFSIGNALED(status) ? EndBySignal(WTERMSIG(status)) : WEXITSTATUS(status);
}

}  // namespace spillway::integration
