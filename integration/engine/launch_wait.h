// LaunchWait: a wait of one of the job's threads inside a launch or an allocation, for as long as another
// party takes. Python's lock is released meanwhile, and a signal that the job has a handler for ends the
// wait. Any thread may create one; an object belongs to its thread.

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
  // Waits until `fd` is readable (-1: there is none), for at most `longest_milliseconds`, or until a signal
  // comes. Returns an error if the main thread has a signal to handle, which Python does between two of its
  // instructions only. `what` stands behind "waited for" in its message, `name` returns who waited.
  absl::Status Once(int fd, int longest_milliseconds, absl::FunctionRef<std::string()> name,
                    const char* what) const;

 private:
  const PythonLock let_go_;
  const bool main_thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_LAUNCH_WAIT_H_
