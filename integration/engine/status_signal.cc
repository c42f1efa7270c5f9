#include "integration/engine/status_signal.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace spillway::integration {
namespace {

// A signal handler can reach nothing but globals. Both are lock-free, so the handler may use them.
std::atomic<bool> g_requested{false};  // stored by the handler, taken by TakeStatusRequest
std::atomic<int> g_wake{-1};           // stored by SetStatusWake, read by the handler

void OnSignal(int) {
  const int saved = errno;
  g_requested.store(true);
  const int wake = g_wake.load();
  const uint64_t one = 1;
  // A full counter has woken the reader already.
  if (wake >= 0 && ::write(wake, &one, sizeof(one)) < 0) errno = saved;
  errno = saved;
}

}  // namespace

bool InstallStatusSignal() {
  struct sigaction old = {};
  if (::sigaction(SIGUSR1, nullptr, &old) != 0) return false;
  if ((old.sa_flags & SA_SIGINFO) != 0 || old.sa_handler != SIG_DFL) return false;
  struct sigaction ours = {};
  ours.sa_handler = OnSignal;
  ours.sa_flags = SA_RESTART;  // the job's system calls go on as if nothing had happened
  ::sigemptyset(&ours.sa_mask);
  return ::sigaction(SIGUSR1, &ours, nullptr) == 0;
}

void SetStatusWake(int eventfd) { g_wake.store(eventfd); }

bool TakeStatusRequest() { return g_requested.exchange(false); }

}  // namespace spillway::integration
