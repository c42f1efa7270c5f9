// LaunchWait: a wait of a thread of the job's inside a launch or an allocation, for as long as somebody else
// takes: with Python's lock let go of, and ended by a signal that the job has a handler for. Any thread; an
// object belongs to one.

#ifndef SPILLWAY_INTEGRATION_ENGINE_LAUNCH_WAIT_H_
#define SPILLWAY_INTEGRATION_ENGINE_LAUNCH_WAIT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "integration/engine/python_lock.h"

namespace spillway::integration {

class LaunchWait {
 public:
  LaunchWait();
  // Waits until `fd` is readable (-1: there is none), for at most so long, or until a signal comes. An error:
  // the main thread has a signal to handle, which Python does between two of its instructions only.
  // `what`: what was waited for, behind "waited for", by whoever `name` names.
  absl::Status Once(int fd, int longest_milliseconds, absl::FunctionRef<std::string()> name,
                    const char* what) const;

 private:
  const PythonLock let_go_;
  const bool main_thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_LAUNCH_WAIT_H_
