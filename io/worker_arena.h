// WorkerArena: a few threads that run what they are given. oneTBB lends them (worker_arena_tbb.cc); builds with
// ThreadSanitizer, which would report the distribution's uninstrumented oneTBB itself, use threads of their own
// (worker_arena_threads.cc). CMake chooses.

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

// At most `threads` tasks run at a time; fewer on a small machine, at least 1. The object may be destroyed when every
// task has begun to return.
std::unique_ptr<WorkerArena> MakeWorkerArena(int threads);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_WORKER_ARENA_H_
