#include "io/os/thread.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <csignal>
#include <exception>
#include <utility>

namespace spillway::os {

absl::StatusOr<Thread> StartThread(const std::string& name, std::function<void()> body) {
  // A new thread inherits the mask. The signals are blocked here, so there is no moment in which a handler
  // could run on the new thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::StatusOr<Thread> thread;
  try {
    thread = std::thread([short_name = name.substr(0, 15), body = std::move(body)] {
      pthread_setname_np(pthread_self(), short_name.c_str());
      body();
    });
  } catch (const std::exception& error) {
    thread = absl::ResourceExhaustedError("the system starts no thread " + name + ": " + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

void SetTimerSlack(std::chrono::nanoseconds slack) {
  prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack.count()), 0, 0, 0);
}

}  // namespace spillway::os
