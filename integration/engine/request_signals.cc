#include "integration/engine/request_signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace spillway::integration {
namespace {

// A signal handler can reach only globals. All of these are lock-free, so the handler may use them.
std::atomic<bool> g_requested[2];  // stored by the handler, taken by TakeRequest
std::atomic<int> g_wake{-1};       // stored by SetRequestWake, read by the handler
std::atomic<uint64_t> g_signals{0};

void OnSignal(int signal) {
  const int saved = errno;
  g_requested[signal == SIGUSR2 ? 1 : 0].store(true);
  g_signals.fetch_add(1);
  const int wake = g_wake.load();
  const uint64_t one = 1;
  // A full counter has woken the reader already.
  if (wake >= 0 && ::write(wake, &one, sizeof(one)) < 0) errno = saved;
  errno = saved;
}

}  // namespace

int SignalOf(SignalRequest request) { return request == SignalRequest::kStatus ? SIGUSR1 : SIGUSR2; }

bool InstallRequestSignal(SignalRequest request) {
  const int signal = SignalOf(request);
  struct sigaction old = {};
  if (::sigaction(signal, nullptr, &old) != 0) return false;
  if ((old.sa_flags & SA_SIGINFO) != 0 || old.sa_handler != SIG_DFL) return false;
  struct sigaction ours = {};
  ours.sa_handler = OnSignal;
  ours.sa_flags = SA_RESTART;  // the job's system calls go on as if nothing had happened
  ::sigemptyset(&ours.sa_mask);
  return ::sigaction(signal, &ours, nullptr) == 0;
}

void SetRequestWake(int eventfd) { g_wake.store(eventfd); }

bool TakeRequest(SignalRequest request) { return g_requested[static_cast<int>(request)].exchange(false); }

uint64_t RequestSignals() { return g_signals.load(); }

}  // namespace spillway::integration
