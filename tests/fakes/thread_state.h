// Whether a thread waits for something. A call that has to wait tells nobody so; a test that lets something happen
// meanwhile looks at this first, by WaitUntil. A short wait on the way there, for a lock, looks the same: a test must
// pass in either case, and may then only miss what it guards against. Any thread.

#ifndef SPILLWAY_TESTS_FAKES_THREAD_STATE_H_
#define SPILLWAY_TESTS_FAKES_THREAD_STATE_H_

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace spillway::tests {

// `thread` is what gettid() returns there, in this process or another. False for one that has ended, and while a page
// comes from a disk. Takes no memory: it must not be what a thread waits for.
inline bool ThreadWaits(pid_t thread) {
  char path[64], text[256];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(thread));
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = read(file, text, sizeof(text) - 1);
  close(file);
  text[size > 0 ? size : 0] = '\0';
  const char* const end_of_name = std::strrchr(text, ')');  // the name may have one, too
  return end_of_name != nullptr && std::strncmp(end_of_name, ") S", 3) == 0;
}

}  // namespace spillway::tests

#endif  // SPILLWAY_TESTS_FAKES_THREAD_STATE_H_
