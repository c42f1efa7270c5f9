// JoinableThread: a background thread whose owner sets the longest wait for its end. A thread that is stuck
// in the kernel or in a driver is left behind; everything that it uses must then stay in memory. Starting
// fails when the system has no thread left.

#ifndef SPILLWAY_IO_OS_JOINABLE_THREAD_H_
#define SPILLWAY_IO_OS_JOINABLE_THREAD_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "io/os/clock.h"
#include "io/os/sync.h"
#include "io/os/thread.h"

namespace spillway::os {

// Has one owner, whose thread makes all calls and starts the thread once. A thread that was started must be
// joined, left behind or abandoned before the object is destroyed, because std::thread ends the process
// otherwise.
class JoinableThread {
 public:
  // Starts the thread by os::StartThread. After an error the object is as if it was never started.
  absl::Status Start(const std::string& name, std::function<void()> body) {
    absl::StatusOr<Thread> thread = StartThread(name, [end = end_, work = std::move(body)] {
      work();
      MutexLock lock(&end->mu);
      end->ended = true;
      end->changed.NotifyAll();
    });
    if (thread.ok()) thread_ = *std::move(thread);
    return thread.status();
  }
  // Whether the thread was started and is neither joined nor left behind.
  bool joinable() const { return thread_.joinable(); }
  // Returns true when the thread has ended within `timeout` or was never started; false when it is left
  // behind. The owner must have asked the thread to end before, since nothing here does.
  bool JoinFor(std::chrono::nanoseconds timeout) {
    if (!thread_.joinable()) return true;
    const bool ended = WaitFor(timeout);  // not thread_.join(), which has no time limit
    if (ended) {
      thread_.join();  // short: the thread has nothing left to do
    } else {
      thread_.detach();
    }
    return ended;
  }
  // Likewise, but the thread is neither joined nor left behind.
  bool WaitFor(std::chrono::nanoseconds timeout) {
    if (!thread_.joinable()) return true;
    const int64_t deadline = Clock::System()->NowNanos() + timeout.count();
    MutexLock lock(&end_->mu);
    for (int64_t now = 0; !end_->ended && (now = Clock::System()->NowNanos()) < deadline;) {
      end_->changed.WaitFor(&end_->mu, std::chrono::nanoseconds(deadline - now));
    }
    return end_->ended;
  }
  // For a forked child, in which the thread does not exist.
  void Abandon() {
    if (thread_.joinable()) thread_.detach();
  }

 private:
  // Set by the thread as its last act, so that JoinFor can wait for it with a time limit.
  struct End {
    Mutex mu{LockRank::kWaits};  // above the locks that an owner may have
    CondVar changed;
    bool ended ABSL_GUARDED_BY(mu) = false;
  };
  std::shared_ptr<End> end_ = std::make_shared<End>();  // shared with the thread, which may be left behind
  Thread thread_;
};

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_JOINABLE_THREAD_H_
