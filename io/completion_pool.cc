#include "io/completion_pool.h"

#include <oneapi/tbb/task_arena.h>
#include <deque>
#include <utility>

#include "io/os/check.h"
#include "io/os/sync.h"

namespace spillway::io {

namespace {

// oneTBB has one worker less than the machine has processors, and complains on standard error when asked for more.
int AvailableThreads(int wanted) {
  return std::max(1, std::min(wanted, tbb::info::default_concurrency() - 1));
}

}  // namespace

struct CompletionPool::State {
  // No place is kept for the application's threads: they never work here.
  explicit State(int threads) : arena(AvailableThreads(threads), 0) {}

  void RunOne() {
    std::function<void()> task;
    {
      os::MutexLock lock(&mu);
      SPILLWAY_CHECK(!tasks.empty());  // one call per task
      task = std::move(tasks.front());
      tasks.pop_front();
    }
    task();
    task = nullptr;  // what it holds goes before anybody is told that the pool is idle
    os::MutexLock lock(&mu);
    if (--unfinished == 0) idle.NotifyAll();
  }

  tbb::task_arena arena;  // internally synchronised

  os::Mutex mu{os::LockRank::kEngine};
  os::CondVar idle;
  std::deque<std::function<void()>> tasks ABSL_GUARDED_BY(mu);
  size_t unfinished ABSL_GUARDED_BY(mu) = 0;  // waiting or running
};

CompletionPool::CompletionPool(int threads) : state_(std::make_unique<State>(threads)) {}
CompletionPool::~CompletionPool() = default;

void CompletionPool::Post(std::function<void()> task) {
  {
    os::MutexLock lock(&state_->mu);
    state_->tasks.push_back(std::move(task));
    ++state_->unfinished;
  }
  state_->arena.enqueue([state = state_.get()] { state->RunOne(); });
}

void CompletionPool::PostFirst(std::function<void()> task) {
  {
    os::MutexLock lock(&state_->mu);
    state_->tasks.push_front(std::move(task));
    ++state_->unfinished;
  }
  state_->arena.enqueue([state = state_.get()] { state->RunOne(); });
}

bool CompletionPool::WaitUntilIdle(std::chrono::nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  os::MutexLock lock(&state_->mu);
  while (state_->unfinished > 0) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) return false;
    state_->idle.WaitFor(&state_->mu, left);
  }
  return true;
}

}  // namespace spillway::io
