// CompletionPool: the workers that compute checksums and run callbacks, so that a directory's thread only
// moves bytes. The store has one pool. A WorkerArena gives the threads. The queue of tasks is this class's
// own, so that tasks start in order and their end can be waited for. Only its creation fails; a task must not
// throw.

#ifndef SPILLWAY_IO_STORE_COMPLETION_POOL_H_
#define SPILLWAY_IO_STORE_COMPLETION_POOL_H_

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace spillway::io {

// How many workers serve so many drives: two each, at most a quarter of the processors, the rest being the
// job's; two at least. A GB takes 0.06 s of one for its checksum and 0.2 s more to be encrypted
// (bench/io_engine_bench, decision 0035), so two keep up with 30 and with 8 GB/s.
int WorkersFor(size_t drives, size_t processors);

class CompletionPool {
 public:
  // At most `threads` tasks run at a time. kResourceExhausted when the system has no thread left.
  static absl::StatusOr<std::unique_ptr<CompletionPool>> Create(int threads);
  // Every posted task must have run (WaitUntilIdle); otherwise the object must be leaked.
  ~CompletionPool();
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Runs `task` soon on a worker, never on the calling thread. Tasks start in the order of posting. Any
  // thread.
  void Post(std::function<void()> task);

  // The same, before all waiting tasks. For reads: a launch waits for a read, and no launch waits for a
  // write. Any thread.
  void PostFirst(std::function<void()> task);

  // Waits until no task waits or runs. False after `timeout`. Any thread but a worker.
  bool WaitUntilIdle(std::chrono::nanoseconds timeout);

 private:
  struct State;
  explicit CompletionPool(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_COMPLETION_POOL_H_
