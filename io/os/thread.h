// Starts the named background threads of this library; every module starts its threads here. They run none of
// the application's signal handlers, and they block SIGXFSZ, because a write beyond RLIMIT_FSIZE must be an
// error of that write, not the end of the job. Starting fails when the system has no thread left.

#ifndef SPILLWAY_IO_OS_THREAD_H_
#define SPILLWAY_IO_OS_THREAD_H_

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace spillway::os {

using Thread = std::thread;
using ThreadId = std::thread::id;

// Starts a thread with every signal blocked. ps and gdb show `name`, cut to 15 bytes. Fails with
// kResourceExhausted and the reason when the system has no thread left. Any thread.
absl::StatusOr<Thread> StartThread(const std::string& name, std::function<void()> body);

inline ThreadId ThisThreadId() { return std::this_thread::get_id(); }
inline void SleepFor(std::chrono::nanoseconds duration) { std::this_thread::sleep_for(duration); }
// Sets the time by which the calling thread's sleeps may end late.
void SetTimerSlack(std::chrono::nanoseconds slack);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_THREAD_H_
