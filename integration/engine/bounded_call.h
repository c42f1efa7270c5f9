// RunWithin: for exit handlers, which must return whatever a driver or a disk does.

#ifndef SPILLWAY_INTEGRATION_ENGINE_BOUNDED_CALL_H_
#define SPILLWAY_INTEGRATION_ENGINE_BOUNDED_CALL_H_

#include <chrono>
#include <functional>
#include <utility>

#include "io/os/joinable_thread.h"

namespace spillway::integration {

// Runs `work` on a thread of its own and waits for it, at most `timeout`. False: it still runs, and what it uses must
// live as long as the process. Without a thread left in the system the work is not done, which counts as false, too.
inline bool RunWithin(std::chrono::milliseconds timeout, std::function<void()> work) {
  os::JoinableThread thread;
  return thread.Start("spillway-exit", std::move(work)).ok() && thread.JoinFor(timeout);
}

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_BOUNDED_CALL_H_
