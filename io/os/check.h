// SPILLWAY_CHECK aborts on a broken invariant, in every build. It does not judge the outcome of I/O or of a
// driver call, which is an absl::Status, and its expression has no side effects. The failure path does not
// allocate, because it may run on a launch thread or in a signal handler.

#ifndef SPILLWAY_IO_OS_CHECK_H_
#define SPILLWAY_IO_OS_CHECK_H_

namespace spillway::os {

// Writes "spillway: CHECK failed: ..." to standard error and aborts. Any thread.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace spillway::os

#define SPILLWAY_CHECK(condition) \
  (__builtin_expect(!!(condition), 1) ? (void)0 : ::spillway::os::CheckFailed(__FILE__, __LINE__, #condition))

#endif  // SPILLWAY_IO_OS_CHECK_H_
