// DeviceThread: the one thread of a device. It polls all background work again and again while there is some,
// and sleeps when there is nothing to do. DeviceResidency creates it and gives it the function to call; any
// thread wakes it. Start fails when the system gives no thread.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_THREAD_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_THREAD_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "allocator/residency/state/core.h"
#include "io/os/joinable_thread.h"
#include "io/os/sync.h"

namespace spillway::allocator {

class DeviceThread {
 public:
  // The work that is still to come when a poll has done nothing. It decides how soon to poll again.
  enum class Ahead { kTransfers, kLaunches, kTime, kNothing };
  // Result of one poll of all background work.
  struct PollResult {
    bool progress = false;  // something was done: poll again at once
    bool moved = false;     // a transfer has moved on, or a launch has completed
    Ahead ahead = Ahead::kNothing;
  };

  // `poll` runs on the thread, with the device's context current and no lock. It is not called after a device
  // error.
  DeviceThread(Core* core, std::function<PollResult()> poll);
  ~DeviceThread();

  absl::Status Start();
  // Ends the thread; transfers under way are left to the end of the process. Returns false when the thread
  // could not be ended in half a second, because a call of the driver does not return. The thread then stays,
  // and everything that it uses must stay. Any other thread.
  bool Stop();
  // For a forked child: the thread does not exist there, and nothing is waited for.
  void Abandon() { thread_.Abandon(); }
  // Makes the thread poll again. Any thread, also I/O completion threads, with or without the table's lock.
  void Wake();

 private:
  void Loop();
  PollResult EndWaits();
  void Sleep(const PollResult& result);

  Core* const core_;
  const std::function<PollResult()> poll_;
  os::JoinableThread thread_;
  bool left_behind_ = false;
  int64_t last_moved_ = 0;  // device's thread: when a transfer last moved on, or a launch completed

  os::Mutex wake_mu_{os::LockRank::kStreams};
  os::CondVar wake_;
  bool woken_ ABSL_GUARDED_BY(wake_mu_) = false;
  bool stop_ ABSL_GUARDED_BY(wake_mu_) = false;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_THREAD_H_
