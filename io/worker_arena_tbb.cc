// WorkerArena over a oneTBB arena, for the product.

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>
#include <algorithm>
#include <utility>

#include "io/worker_arena.h"

namespace spillway::io {
namespace {

class TbbArena : public WorkerArena {
 public:
  // No place is reserved for the application's threads: they never run tasks here.
  explicit TbbArena(int threads) : arena_(threads, 0) {}
  void Run(std::function<void()> task) override { arena_.enqueue(std::move(task)); }

 private:
  tbb::task_arena arena_;
};

}  // namespace

std::unique_ptr<WorkerArena> MakeWorkerArena(int threads) {
  // oneTBB has one worker less than the machine has processors, and warns on standard error when asked for
  // more.
  return std::make_unique<TbbArena>(std::max(1, std::min(threads, tbb::info::default_concurrency() - 1)));
}

}  // namespace spillway::io
