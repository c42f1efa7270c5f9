#include "io/store/completion_pool.h"

#include <deque>
#include <utility>

#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/sync.h"
#include "io/store/worker_arena.h"

namespace spillway::io {

int WorkersFor(size_t drives, size_t processors) {
  return static_cast<int>(std::max<size_t>(2, std::min(2 * drives, processors / 4)));
}

struct CompletionPool::State {
  explicit State(std::unique_ptr<WorkerArena> threads) : arena(std::move(threads)) {}

  enum class End : uint8_t { kFront, kBack };

  void Add(std::function<void()> task, End end) {
    {
      os::MutexLock lock(&mu);
      if (end == End::kFront) {
        tasks.push_front(std::move(task));
      } else {
        tasks.push_back(std::move(task));
      }
      ++unfinished;
    }
    arena->Run([this] { RunOne(); });  // one call per task; each call runs the task at the front
  }

  void RunOne() {
    std::function<void()> task;
    {
      os::MutexLock lock(&mu);
      SPILLWAY_CHECK(!tasks.empty());
      task = std::move(tasks.front());
      tasks.pop_front();
    }
    task();
    task = nullptr;  // frees what the task captured before the pool counts as idle
    os::MutexLock lock(&mu);
    if (--unfinished == 0) idle.NotifyAll();
  }

  os::Mutex mu{os::LockRank::kEngine};
  os::CondVar idle;
  std::deque<std::function<void()>> tasks ABSL_GUARDED_BY(mu);
  size_t unfinished ABSL_GUARDED_BY(mu) = 0;  // waiting or running
  const std::unique_ptr<WorkerArena> arena;   // last member: its threads end before the members that they use
};

absl::StatusOr<std::unique_ptr<CompletionPool>> CompletionPool::Create(int threads) {
  SPILLWAY_ASSIGN_OR_RETURN(std::unique_ptr<WorkerArena> arena, WorkerArena::Create(threads));
  return std::unique_ptr<CompletionPool>(new CompletionPool(std::make_unique<State>(std::move(arena))));
}

CompletionPool::CompletionPool(std::unique_ptr<State> state) : state_(std::move(state)) {}
CompletionPool::~CompletionPool() = default;

void CompletionPool::Post(std::function<void()> task) { state_->Add(std::move(task), State::End::kBack); }
void CompletionPool::PostFirst(std::function<void()> task) {
  state_->Add(std::move(task), State::End::kFront);
}

bool CompletionPool::WaitUntilIdle(std::chrono::nanoseconds timeout) {
  const auto deadline = os::SteadyClock::now() + timeout;
  os::MutexLock lock(&state_->mu);
  while (state_->unfinished > 0) {
    const auto left = deadline - os::SteadyClock::now();
    if (left <= std::chrono::nanoseconds::zero()) return false;
    state_->idle.WaitFor(&state_->mu, left);
  }
  return true;
}

}  // namespace spillway::io
