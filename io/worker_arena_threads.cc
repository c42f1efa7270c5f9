// WorkerArena over threads of its own: for builds with ThreadSanitizer.

#include <deque>
#include <utility>
#include <vector>

#include "io/os/check.h"
#include "io/os/sync.h"
#include "io/os/thread.h"
#include "io/worker_arena.h"

namespace spillway::io {
namespace {

class ThreadArena : public WorkerArena {
 public:
  explicit ThreadArena(int threads) {
    for (int i = 0; i < threads; ++i) {
      absl::StatusOr<os::Thread> thread = os::StartThread("spill-sum", [this] { Work(); });
      SPILLWAY_CHECK(thread.ok());
      threads_.push_back(*std::move(thread));
    }
  }

  ~ThreadArena() override {
    {
      os::MutexLock lock(&mu_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    for (os::Thread& thread : threads_) thread.join();
  }

  void Run(std::function<void()> task) override {
    os::MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
    changed_.NotifyOne();
  }

 private:
  void Work() {
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

  std::vector<os::Thread> threads_;  // constant after construction
  os::Mutex mu_{os::LockRank::kEngine};
  os::CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

std::unique_ptr<WorkerArena> MakeWorkerArena(int threads) { return std::make_unique<ThreadArena>(threads); }

}  // namespace spillway::io
