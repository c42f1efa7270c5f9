// WorkerArena: a few threads that run tasks for CompletionPool. They are oneTBB's (worker_arena_tbb.cc).
// Builds with ThreadSanitizer use threads of their own (worker_arena_threads.cc), since it reports false
// races in the distribution's uninstrumented oneTBB. CMake chooses one of the two. Making an arena stops the
// process when no thread can be started.

#ifndef SPILLWAY_IO_WORKER_ARENA_H_
#define SPILLWAY_IO_WORKER_ARENA_H_

#include <functional>
#include <memory>

namespace spillway::io {

class WorkerArena {
 public:
  virtual ~WorkerArena() = default;
  // Runs `task` soon on a worker, never on the calling thread. Any thread.
  virtual void Run(std::function<void()> task) = 0;
};

// At most `threads` tasks run at a time; on a small machine fewer, at least 1. The object may be destroyed
// once every task has begun to return.
std::unique_ptr<WorkerArena> MakeWorkerArena(int threads);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_WORKER_ARENA_H_
