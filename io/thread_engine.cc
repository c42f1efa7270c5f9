#include "io/thread_engine.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/sync.h"
#include "io/os/thread.h"

namespace spillway::io {
namespace {

// Shared with the threads, so that a thread that is stuck in the kernel can be left behind.
struct Shared {
  Shared(std::vector<int> files_arg, PageCache cache) : files(std::move(files_arg)), page_cache(cache) {}

  const std::vector<int> files;
  const PageCache page_cache;

  os::Mutex mu{os::LockRank::kEngine};
  os::CondVar work;      // todo or stopping changed
  os::CondVar finished;  // done, woken or running changed
  std::deque<IoRequest> todo ABSL_GUARDED_BY(mu);
  std::deque<IoResult> done ABSL_GUARDED_BY(mu);
  bool woken ABSL_GUARDED_BY(mu) = false;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  int running ABSL_GUARDED_BY(mu) = 0;  // threads that have not ended
  int idle ABSL_GUARDED_BY(mu) = 0;     // threads that wait for work
};

int32_t Serve(const Shared& shared, const IoRequest& request) {
  if (request.file >= shared.files.size()) return -EBADF;
  const int fd = shared.files[request.file];
  const auto offset = static_cast<off_t>(request.offset);
  const ssize_t moved = request.op == IoOp::kWrite ? pwrite(fd, request.buffer, request.length, offset)
                                                   : pread(fd, request.buffer, request.length, offset);
  if (moved < 0) return -errno;
  // Starts the write-back of dirty pages and drops clean ones. A later call drops the others.
  if (shared.page_cache == PageCache::kDropped) posix_fadvise(fd, offset, moved, POSIX_FADV_DONTNEED);
  return static_cast<int32_t>(moved);
}

void Work(Shared* shared) {
  shared->mu.Lock();
  while (true) {
    while (shared->todo.empty() && !shared->stopping) {
      ++shared->idle;
      shared->work.Wait(&shared->mu);
      --shared->idle;
    }
    if (shared->stopping) break;  // requests that were not started are dropped, as Stop says
    const IoRequest request = shared->todo.front();
    shared->todo.pop_front();
    shared->mu.Unlock();
    const int32_t result = Serve(*shared, request);
    shared->mu.Lock();
    shared->done.push_back(IoResult{request.tag, result});
    shared->finished.NotifyAll();
  }
  --shared->running;
  shared->finished.NotifyAll();
  shared->mu.Unlock();
}

class ThreadEngine : public IoEngine {
 public:
  ThreadEngine(std::vector<int> files, const ThreadEngineOptions& options)
      : capacity_(options.capacity), shared_(std::make_shared<Shared>(std::move(files), options.page_cache)) {
    SPILLWAY_CHECK(options.threads > 0 && options.capacity > 0);
  }

  absl::Status Start(const ThreadEngineOptions& options) {
    for (int i = 0; i < options.threads; ++i) {
      absl::StatusOr<os::Thread> thread =
          os::StartThread(options.thread_name, [shared = shared_] { Work(shared.get()); });
      if (!thread.ok()) return threads_.empty() ? thread.status() : absl::OkStatus();
      threads_.push_back(*std::move(thread));
      os::MutexLock lock(&shared_->mu);
      ++shared_->running;
    }
    return absl::OkStatus();
  }

  ~ThreadEngine() override {
    if (!threads_.empty()) Stop(std::chrono::seconds(2));  // else it was stopped: nothing more is waited for
  }

  const char* name() const override { return "threads"; }
  size_t capacity() const override { return capacity_; }

  void Submit(std::span<const IoRequest> requests) override {
    if (requests.empty()) return;
    os::MutexLock lock(&shared_->mu);
    shared_->todo.insert(shared_->todo.end(), requests.begin(), requests.end());
    // Wakes as many threads as have something to do: waking all for two requests costs more than the
    // requests.
    const size_t wake = std::min(requests.size(), static_cast<size_t>(shared_->idle));
    for (size_t i = 0; i < wake; ++i) shared_->work.NotifyOne();
  }

  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    const auto deadline = os::SteadyClock::now() + timeout;
    os::MutexLock lock(&shared_->mu);
    while (shared_->done.empty() && !shared_->woken) {
      const auto left = deadline - os::SteadyClock::now();
      if (left <= std::chrono::nanoseconds::zero()) break;
      shared_->finished.WaitFor(&shared_->mu, left);
    }
    shared_->woken = false;
    const size_t count = std::min(results.size(), shared_->done.size());
    std::copy_n(shared_->done.begin(), count, results.begin());
    shared_->done.erase(shared_->done.begin(), shared_->done.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  void Wake() override {
    os::MutexLock lock(&shared_->mu);
    shared_->woken = true;
    shared_->finished.NotifyAll();
  }

  bool Stop(std::chrono::nanoseconds timeout) override {
    const bool ended = WaitForThreads(timeout);
    for (os::Thread& thread : threads_) {
      if (ended) {
        thread.join();
      } else {
        thread.detach();  // stuck in the kernel; it keeps Shared alive and ends when its call returns
      }
    }
    threads_.clear();
    return ended;
  }

 private:
  bool WaitForThreads(std::chrono::nanoseconds timeout) {
    const auto deadline = os::SteadyClock::now() + timeout;
    os::MutexLock lock(&shared_->mu);
    shared_->stopping = true;
    shared_->work.NotifyAll();
    while (shared_->running > 0) {
      const auto left = deadline - os::SteadyClock::now();
      if (left <= std::chrono::nanoseconds::zero()) return false;
      shared_->finished.WaitFor(&shared_->mu, left);
    }
    return true;
  }

  const size_t capacity_;
  const std::shared_ptr<Shared> shared_;  // internally synchronised
  std::vector<os::Thread> threads_;       // the owner's thread only
};

}  // namespace

absl::StatusOr<std::unique_ptr<IoEngine>> MakeThreadEngine(std::vector<int> files,
                                                           const ThreadEngineOptions& options) {
  auto engine = std::make_unique<ThreadEngine>(std::move(files), options);
  SPILLWAY_RETURN_IF_ERROR(engine->Start(options));
  return engine;
}

}  // namespace spillway::io
