#include "io/engine/thread_engine.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <deque>
#include <string>
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
  explicit Shared(PageCache cache) : page_cache(cache) {}

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
  int writing ABSL_GUARDED_BY(mu) = 0;  // threads in a write
};

// Finds the next request for a thread; the end of the list when there is none. Writes leave a quarter of the
// threads to reads, because a drive may keep writes, and with them their threads, for as long as it likes.
std::deque<IoRequest>::iterator NextLocked(Shared* shared) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared->mu) {
  const int for_reads = shared->running == 1 ? 0 : std::max(1, shared->running / 4);
  const bool may_write = shared->writing < shared->running - for_reads;
  return std::find_if(shared->todo.begin(), shared->todo.end(), [may_write](const IoRequest& request) {
    return may_write || request.op == IoOp::kRead;
  });
}

// Opens the files again for one thread, so that it gets the errors of its own writes.
//
// An open file description has its own cursor of write-back errors: fdatasync reports on it, once, what has
// failed since its last report. If several threads shared one description, the error of one thread's write
// could be reported to another thread's fdatasync, or to that of the file's growth. The first thread would
// then report lost bytes as written. A thread that has descriptions of its own is certain to see the error of
// its own write. The other threads see that error as well; their writes are then refused or tried again
// although they were good, which costs time and no bytes.
absl::Status OpenAgain(const std::vector<int>& files, std::vector<int>* opened) {
  for (const int file : files) {
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    const int fd = open(link.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      absl::Status status = os::StatusFromErrno(errno, "opening a spill file again by " + link);
      for (const int other : *opened) close(other);
      opened->clear();
      return status;
    }
    // Read-ahead would be dropped before the next read.
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    opened->push_back(fd);
  }
  return absl::OkStatus();
}

int32_t Write(int fd, const IoRequest& request, PageCache page_cache) {
  const auto offset = static_cast<off_t>(request.offset);
  const ssize_t moved = pwrite(fd, request.buffer, request.length, offset);
  if (moved < 0) return -errno;
  if (page_cache == PageCache::kBypassed || moved == 0) return static_cast<int32_t>(moved);
  const int error = fdatasync(fd) == 0 ? 0 : errno;
  // Drops the clean pages, also after an error: otherwise a read would find there what the disk does not
  // have.
  posix_fadvise(fd, offset, moved, POSIX_FADV_DONTNEED);
  return error == 0 ? static_cast<int32_t>(moved) : -error;
}

int32_t Read(int fd, const IoRequest& request, PageCache page_cache) {
  const auto offset = static_cast<off_t>(request.offset);
  const bool cached = page_cache == PageCache::kWrittenThrough;
  // A second read of bytes that were wrong must come from the disk.
  if (cached) posix_fadvise(fd, offset, request.length, POSIX_FADV_DONTNEED);
  const ssize_t moved = pread(fd, request.buffer, request.length, offset);
  if (moved < 0) return -errno;
  if (cached) posix_fadvise(fd, offset, moved, POSIX_FADV_DONTNEED);
  return static_cast<int32_t>(moved);
}

int32_t Serve(const std::vector<int>& files, PageCache page_cache, const IoRequest& request) {
  if (request.file >= files.size()) return -EBADF;
  const int fd = files[request.file];
  return request.op == IoOp::kWrite ? Write(fd, request, page_cache) : Read(fd, request, page_cache);
}

void Work(Shared* shared, const std::vector<int>& files) {
  shared->mu.Lock();
  while (true) {
    auto next = NextLocked(shared);
    while (next == shared->todo.end() && !shared->stopping) {
      ++shared->idle;
      shared->work.Wait(&shared->mu);
      --shared->idle;
      next = NextLocked(shared);
    }
    if (shared->stopping) break;  // requests that were not started are dropped, as Stop documents
    const IoRequest request = *next;
    shared->todo.erase(next);
    shared->writing += request.op == IoOp::kWrite ? 1 : 0;
    shared->mu.Unlock();
    const int32_t result = Serve(files, shared->page_cache, request);
    shared->mu.Lock();
    shared->writing -= request.op == IoOp::kWrite ? 1 : 0;
    shared->done.push_back(IoResult{request.tag, result});
    shared->finished.NotifyAll();
  }
  --shared->running;
  shared->finished.NotifyAll();
  shared->mu.Unlock();
}

class ThreadEngine : public IoEngine {
 public:
  explicit ThreadEngine(const ThreadEngineOptions& options)
      : capacity_(options.capacity), shared_(std::make_shared<Shared>(options.page_cache)) {
    SPILLWAY_CHECK(options.threads > 0 && options.capacity > 0);
  }

  absl::Status Start(const std::vector<int>& files, const ThreadEngineOptions& options) {
    for (int i = 0; i < options.threads; ++i) {
      absl::Status started = StartOne(files, options);
      if (started.ok()) continue;
      if (!threads_.empty()) break;
      CloseOwn();
      return started;
    }
    return absl::OkStatus();
  }

  ~ThreadEngine() override {
    if (!threads_.empty()) Stop(std::chrono::seconds(2));  // else it was stopped already
  }

  const char* name() const override { return "threads"; }
  size_t capacity() const override { return capacity_; }

  void Submit(std::span<const IoRequest> requests) override {
    if (requests.empty()) return;
    os::MutexLock lock(&shared_->mu);
    shared_->todo.insert(shared_->todo.end(), requests.begin(), requests.end());
    // Wakes only as many threads as have something to do. Waking all of them for two requests costs more than
    // the requests.
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
    if (ended) CloseOwn();  // otherwise a thread may still use them
    return ended;
  }

  void AbandonAfterFork() override { CloseOwn(); }

 private:
  absl::Status StartOne(std::vector<int> files, const ThreadEngineOptions& options) {
    if (options.page_cache == PageCache::kWrittenThrough) {
      std::vector<int> opened;
      SPILLWAY_RETURN_IF_ERROR(OpenAgain(files, &opened));
      own_.insert(own_.end(), opened.begin(), opened.end());
      files = std::move(opened);
    }
    os::Thread thread;
    SPILLWAY_ASSIGN_OR_RETURN(thread, os::StartThread(options.thread_name, [shared = shared_, files] {
                                Work(shared.get(), files);
                              }));
    threads_.push_back(std::move(thread));
    os::MutexLock lock(&shared_->mu);
    ++shared_->running;
    return absl::OkStatus();
  }

  void CloseOwn() {
    for (const int fd : own_) close(fd);
    own_.clear();
  }

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
  const std::shared_ptr<Shared> shared_;  // internally synchronized
  std::vector<os::Thread> threads_;       // the owner's thread only
  std::vector<int> own_;                  // opened by threads for themselves; constant until the end
};

}  // namespace

absl::StatusOr<std::unique_ptr<IoEngine>> MakeThreadEngine(const std::vector<int>& files,
                                                           const ThreadEngineOptions& options) {
  auto engine = std::make_unique<ThreadEngine>(options);
  SPILLWAY_RETURN_IF_ERROR(engine->Start(files, options));
  return engine;
}

}  // namespace spillway::io
