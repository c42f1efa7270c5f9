// CompletionPool: the workers that compute checksums and run callbacks, so that a directory's thread only
// moves bytes. The store has one pool. A WorkerArena provides the threads. The queue of tasks is this class's
// own, so that tasks start in order and their end can be waited for. Only its creation fails; a task must not
// throw.

#ifndef SPILLWAY_IO_STORE_COMPLETION_POOL_H_
#define SPILLWAY_IO_STORE_COMPLETION_POOL_H_

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace spillway::io {

// Number of workers for so many drives: two for each drive, at most a quarter of the processors, since the
// rest are the job's, and at least two. One worker takes 0.06 s for the checksum of a GB and 0.2 s more to
// encrypt it (bench/io_engine_bench, decision 0035), so two workers keep up with 30 and with 8 GB/s.
int WorkersFor(size_t drives, size_t processors);

class CompletionPool {
 public:
  // At most `threads` tasks run at a time. kResourceExhausted when the system has no thread left.
  static absl::StatusOr<std::unique_ptr<CompletionPool>> Create(int threads);
  // Every posted task must have run (WaitUntilIdle); otherwise the object must be leaked.
  ~CompletionPool();
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Runs `task` soon on a worker, never on the calling thread. Tasks start in the order in which they were
  // posted. Any thread.
  void Post(std::function<void()> task);

  // Does the same, before all waiting tasks. For reads: a launch waits for a read, and no launch waits for a
  // write. Any thread.
  void PostFirst(std::function<void()> task);

  // Waits until no task waits or runs. Returns false after `timeout`. Any thread but a worker.
  bool WaitUntilIdle(std::chrono::nanoseconds timeout);

 private:
  struct State;
  explicit CompletionPool(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_COMPLETION_POOL_H_
