// WorkerArena: a few threads that run tasks for CompletionPool, in the order in which they came. The threads
// are started by Create, so that a lack of threads is an error then, and not the end of the job later. Any
// thread gives it tasks; nothing else fails.

#ifndef SPILLWAY_IO_STORE_WORKER_ARENA_H_
#define SPILLWAY_IO_STORE_WORKER_ARENA_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "io/os/sync.h"
#include "io/os/thread.h"

namespace spillway::io {

class WorkerArena {
 public:
  // At most `threads` tasks run at a time; fewer when the system has no more threads. kResourceExhausted when
  // it has none.
  static absl::StatusOr<std::unique_ptr<WorkerArena>> Create(int threads);
  // Waits for the tasks.
  ~WorkerArena();
  WorkerArena(const WorkerArena&) = delete;
  WorkerArena& operator=(const WorkerArena&) = delete;

  // Runs `task` soon on a worker, never on the calling thread. Any thread.
  void Run(std::function<void()> task);

 private:
  WorkerArena() = default;
  void Work();

  std::vector<os::Thread> threads_;  // constant after Create
  os::Mutex mu_{os::LockRank::kEngine};
  os::CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_WORKER_ARENA_H_
