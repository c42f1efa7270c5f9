// Starts the named background threads of this library. They run none of the application's signal handlers and take
// no SIGXFSZ (a write beyond RLIMIT_FSIZE must be an error of that write, not the end of the job).

#ifndef SPILLWAY_IO_OS_THREAD_H_
#define SPILLWAY_IO_OS_THREAD_H_

#include <functional>
#include <string>
#include <thread>

namespace spillway::os {

// A thread with every signal blocked and `name` (cut to 15 bytes) shown by ps and gdb. Aborts when the system has no
// thread left. Any thread.
std::thread StartThread(const std::string& name, std::function<void()> body);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_THREAD_H_
