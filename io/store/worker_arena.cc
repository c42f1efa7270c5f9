#include "io/store/worker_arena.h"

#include <utility>

namespace spillway::io {

absl::StatusOr<std::unique_ptr<WorkerArena>> WorkerArena::Create(int threads) {
  std::unique_ptr<WorkerArena> arena(new WorkerArena);
  for (int i = 0; i < threads; ++i) {
    absl::StatusOr<os::Thread> thread = os::StartThread("spill-sum", [kept = arena.get()] { kept->Work(); });
    if (!thread.ok() && arena->threads_.empty()) return thread.status();
    if (!thread.ok()) break;
    arena->threads_.push_back(*std::move(thread));
  }
  return arena;
}

WorkerArena::~WorkerArena() {
  {
    os::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (os::Thread& thread : threads_) thread.join();
}

void WorkerArena::Run(std::function<void()> task) {
  os::MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
}

void WorkerArena::Work() {
  mu_.Lock();
  while (true) {
    while (tasks_.empty() && !stopping_) changed_.Wait(&mu_);
    if (tasks_.empty()) break;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    mu_.Unlock();
    task();
    mu_.Lock();
  }
  mu_.Unlock();
}

}  // namespace spillway::io
