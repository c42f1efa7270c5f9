// RunWithin: a call with a limit of time. Runtime::Shutdown ends devices and drives by it, in an exit
// handler, which must return whatever a driver or a disk does: a finished job must not hang at its end. The
// work has a thread of its own, and may go on after the limit; the result tells. No call fails.

#ifndef SPILLWAY_INTEGRATION_ENGINE_BOUNDED_CALL_H_
#define SPILLWAY_INTEGRATION_ENGINE_BOUNDED_CALL_H_

#include <chrono>
#include <functional>

#include "io/os/joinable_thread.h"

namespace spillway::integration {

// Runs `work` on a thread of its own and waits for it, at most `timeout`. Returns false if `work` still runs:
// the objects that it uses must live as long as the process then. If no thread can be started, `work` runs
// here, however long it takes.
inline bool RunWithin(std::chrono::milliseconds timeout, const std::function<void()>& work) {
  os::JoinableThread thread;
  if (thread.Start("spillway-exit", work).ok()) return thread.JoinFor(timeout);
  work();
  return true;
}

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_BOUNDED_CALL_H_
