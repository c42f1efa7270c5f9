#include "integration/cli/common/workers.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "io/os/sync.h"
#include "io/os/thread.h"

namespace spillway::integration {
namespace {

constexpr std::chrono::milliseconds kScanInterval(200);
constexpr unsigned kMaxThreads = 1024;
constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};

// The queue from which several threads take tasks.
class Queue {
 public:
  Queue(size_t count, const Workers::FallibleTask& task) : task_(task), statuses_(count), end_(count) {}

  // Takes tasks until none is left.
  void Work() {
    mu_.Lock();
    while (next_ < end_) {
      const size_t mine = next_++;
      mu_.Unlock();
      absl::Status status = task_(mine);
      mu_.Lock();
      ++done_;
      if (!status.ok()) end_ = std::min(end_, mine);
      statuses_[mine] = std::move(status);
    }
    ++left_;
    mu_.Unlock();
    changed_.NotifyAll();
  }

  // Waits until this many threads have left Work, or for a moment. Returns whether they have.
  bool Wait(size_t threads, size_t* done) {
    os::MutexLock lock(&mu_);
    if (left_ < threads) changed_.WaitFor(&mu_, kScanInterval);
    *done = done_;
    return left_ == threads;
  }

  // Called after all threads have left.
  absl::Status FirstError() {
    os::MutexLock lock(&mu_);
    for (absl::Status& status : statuses_) {
      if (!status.ok()) return std::move(status);
    }
    return absl::OkStatus();
  }

 private:
  const Workers::FallibleTask& task_;
  os::Mutex mu_{os::LockRank::kWaits};
  os::CondVar changed_;
  std::vector<absl::Status> statuses_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  size_t end_ ABSL_GUARDED_BY(mu_);  // tasks from here on are not begun
  size_t done_ ABSL_GUARDED_BY(mu_) = 0;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;  // threads
};

extern "C" void ClearAndEnd(int signal) {
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, ProgressBar::kClear, sizeof(ProgressBar::kClear) - 1);
  ::raise(signal);  // ends the process as without us, once this handler has returned
}

// While it lives, a signal that ends the process leaves a clean line. Signals that others handle or ignore
// stay theirs.
class CleanEnd {
 public:
  CleanEnd() {
    for (int signal : kEnding) {
      struct sigaction before = {};
      ::sigaction(signal, nullptr, &before);
      if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) continue;
      struct sigaction action = {};
      action.sa_handler = ClearAndEnd;
      action.sa_flags = static_cast<int>(SA_RESETHAND);
      ::sigaction(signal, &action, nullptr);
      changed_.push_back(signal);
    }
  }
  ~CleanEnd() {
    for (int signal : changed_) std::signal(signal, SIG_DFL);
  }
  CleanEnd(const CleanEnd&) = delete;
  CleanEnd& operator=(const CleanEnd&) = delete;

 private:
  std::vector<int> changed_;
};

}  // namespace

Workers::Workers(unsigned threads, std::FILE* to, const os::Clock* clock)
    : threads_(threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency())),
      to_(to != nullptr && ::isatty(::fileno(to)) != 0 ? to : nullptr),
      clock_(clock),
      begin_(clock->NowNanos()) {}

void AddThreads(CLI::App* app, unsigned* threads) {
  app->add_option("--threads", *threads, "Machines simulated at once (default: as many as processors)")
      ->check(CLI::Range(1u, kMaxThreads));
}

void Workers::ForEach(const std::string& what, size_t count, const Task& task) {
  const absl::Status never_fails = TryForEach(what, count, [&task](size_t i) {
    task(i);
    return absl::OkStatus();
  });
  never_fails.IgnoreError();
}

absl::Status Workers::TryForEach(const std::string& what, size_t count, const FallibleTask& task) {
  Queue queue(count, task);
  const size_t wanted = std::min<size_t>(threads_, count);
  std::vector<os::Thread> started;
  // A single thread that shows nothing needs no other.
  while (started.size() < wanted && (wanted > 1 || to_ != nullptr)) {
    auto thread = os::StartThread("spillway-work", [&queue] { queue.Work(); });
    if (!thread.ok()) break;
    started.push_back(*std::move(thread));
  }
  if (started.empty()) queue.Work();
  if (to_ != nullptr && !started.empty()) {
    const CleanEnd clean_end;
    ProgressBar bar(to_, /*terminal=*/true);
    for (size_t done = 0; !queue.Wait(started.size(), &done);) {
      if (clock_->NowNanos() - begin_ < kWaitNanos) continue;
      bar.Show(what, static_cast<double>(done) / static_cast<double>(count),
               absl::StrCat(done, " of ", count));
    }
  }
  for (os::Thread& thread : started) thread.join();
  return queue.FirstError();
}

}  // namespace spillway::integration
