// CompletionPool: the workers that compute checksums and run callbacks, so that a directory's thread only moves
// bytes. A WorkerArena lends the threads; the queue of tasks is ours, which gives them their order and an end.

#ifndef SPILLWAY_IO_COMPLETION_POOL_H_
#define SPILLWAY_IO_COMPLETION_POOL_H_

#include <chrono>
#include <functional>
#include <memory>

namespace spillway::io {

class CompletionPool {
 public:
  // At most `threads` tasks run at a time, at least 1.
  explicit CompletionPool(int threads);
  // Every task posted must have run (WaitUntilIdle) or the object must be leaked.
  ~CompletionPool();
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Runs `task` soon on a worker, never on the calling thread. Tasks start in the order of posting. Any thread.
  void Post(std::function<void()> task);

  // The same, before all that wait: somebody waits for what is read, nobody for what is written.
  void PostFirst(std::function<void()> task);

  // True once no task waits or runs; false after `timeout`. Not from a task.
  bool WaitUntilIdle(std::chrono::nanoseconds timeout);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_COMPLETION_POOL_H_
