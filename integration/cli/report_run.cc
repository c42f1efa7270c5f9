#include "integration/cli/report_run.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "absl/status/status.h"
#include "integration/cli/report.h"
#include "integration/cli/report_files.h"

namespace spillway::integration {
namespace {

constexpr int kCannotRun = 127;
constexpr long long kNanos = 1'000'000'000;
constexpr int kOfTerminal[] = {SIGINT, SIGQUIT};  // reach the command by themselves
constexpr int kHandedOn[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

volatile std::sig_atomic_t g_child = 0;  // written before the handlers are there

void HandOn(int signal) {
  const int before = errno;
  if (g_child > 0) ::kill(g_child, signal);
  errno = before;
}

void SetAction(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

// Ends this process as the command was ended, without a second core file.
int EndBySignal(int signal) {
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  SetAction(signal, SIG_DFL);
  ::raise(signal);
  return 128 + signal;  // it was blocked, or cannot end a process
}

// What this process ignores or hands on is the command's own affair again. Signals that come before the child is there
// wait until it is.
pid_t Start(const std::vector<char*>& command, sigset_t* blocked, sigset_t* before) {
  ::sigemptyset(blocked);
  for (int signal : kHandedOn) ::sigaddset(blocked, signal);
  for (int signal : kOfTerminal) ::sigaddset(blocked, signal);
  ::sigprocmask(SIG_BLOCK, blocked, before);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::sigprocmask(SIG_SETMASK, before, nullptr);
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

void MakePages(const std::string& page, long long since_unix_ns, const std::string& library_directory) {
  const std::string pattern = DataPathOf(page);
  const std::vector<std::string> files = WrittenDataFiles(pattern, since_unix_ns);
  if (files.empty())
    std::fprintf(
        stderr,
        "spillway: no report: the command wrote no %s. No process of it used the GPU under Spillway to its "
        "end, or for a second before it was killed\n",
        pattern.c_str());
  for (const std::string& file : files) {
    ReportOptions options;
    options.file = file;
    options.output = PageOfDataFile(file);
    options.library_directory = library_directory;
    const absl::Status status = WriteReportPage(options);
    if (status.ok())
      std::fprintf(stderr, "spillway: report: %s\n", options.output.c_str());
    else
      std::fprintf(stderr, "spillway: no page of %s: %s\n", file.c_str(),
                   std::string(status.message()).c_str());
  }
}

}  // namespace

int RunAndReport(const std::vector<char*>& command, const std::string& page,
                 const std::string& library_directory) {
  if (const absl::Status status = FindDrawingLibrary(library_directory); !status.ok())
    std::fprintf(stderr, "spillway: there will be no page, the data alone: %s\n",
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
  for (int signal : kHandedOn) SetAction(signal, HandOn);
  for (int signal : kOfTerminal) SetAction(signal, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  const int status = WaitFor(child);
  g_child = 0;
  for (int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP})
    SetAction(signal, SIG_DFL);  // the page may be given up
  MakePages(page, now.tv_sec * kNanos + now.tv_nsec, library_directory);
  return WIFSIGNALED(status) ? EndBySignal(WTERMSIG(status)) : WEXITSTATUS(status);
}

}  // namespace spillway::integration
