#include "io/engine/uring_engine.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/thread.h"

namespace spillway::io {
namespace {

constexpr uint64_t kWakeTag = UINT64_MAX - 1;  // the highest value is liburing's own

class UringEngine : public IoEngine {
 public:
  UringEngine(size_t capacity, size_t files, WakeUps wake_ups)
      : capacity_(capacity), file_count_(files), wake_ups_(wake_ups) {}
  ~UringEngine() override { Stop(std::chrono::nanoseconds::zero()); }

  absl::Status Start(const std::vector<int>& files) {
    const auto entries = static_cast<unsigned>(capacity_ + 1);  // one more for the wake-up
    // Completions need not interrupt this thread, which enters the kernel to fetch them anyway. Linux before
    // 5.19 does not know the flag.
    int error = io_uring_queue_init(entries, &ring_, IORING_SETUP_COOP_TASKRUN);
    if (error == -EINVAL) error = io_uring_queue_init(entries, &ring_, 0);
    if (error < 0) return os::StatusFromErrno(-error, "io_uring_queue_init");
    ring_open_ = true;
    io_uring_ring_dontfork(&ring_);
    error = io_uring_register_files(&ring_, files.data(), static_cast<unsigned>(files.size()));
    if (error < 0) return os::StatusFromErrno(-error, "io_uring_register_files");
    wake_fd_ = eventfd(0, EFD_CLOEXEC);
    if (wake_fd_ < 0) return os::StatusFromErrno(errno, "eventfd");
    return absl::OkStatus();
  }

  const char* name() const override { return "io_uring"; }
  size_t capacity() const override { return capacity_; }

  void Submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) Prepare(request);
    // Entries that a broken ring has not taken have their results already, so the kernel must not take them.
    if (broken_ == 0) Enter(0, std::chrono::nanoseconds::zero());
  }

  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    bool woken = false;
    size_t count = Reap(results, &woken);
    if (count > 0 || woken) return count;
    if (broken_ != 0) {  // no result will come, and the caller must not spin
      os::SleepFor(std::min(timeout, std::chrono::nanoseconds(std::chrono::milliseconds(10))));
      return 0;
    }
    ArmWake();
    Enter(1, timeout);
    return Reap(results, &woken);
  }

  void Wake() override {
    const uint64_t one = 1;
    const ssize_t written = write(wake_fd_, &one, sizeof(one));
    (void)written;  // fails only when the counter is full, and then the reader is awake anyway
  }

  bool Stop(std::chrono::nanoseconds timeout) override {
    const bool idle = DrainUntil(os::SteadyClock::now() + timeout);
    if (ring_open_) io_uring_queue_exit(&ring_);
    ring_open_ = false;
    if (wake_fd_ >= 0) close(wake_fd_);
    wake_fd_ = -1;
    return idle;
  }

  void AbandonAfterFork() override {
    if (ring_open_) close(ring_.ring_fd);
    if (wake_fd_ >= 0) close(wake_fd_);
  }

 private:
  void Prepare(const IoRequest& request) {
    int error = broken_;
    if (request.file >= file_count_) error = -EBADF;
    io_uring_sqe* sqe = error == 0 ? io_uring_get_sqe(&ring_) : nullptr;
    if (sqe == nullptr) {  // when there is no error: more than capacity() in flight
      refused_.push_back(IoResult{request.tag, error != 0 ? error : -EBUSY});
      return;
    }
    const auto file = static_cast<int>(request.file);
    if (request.op == IoOp::kWrite) {
      io_uring_prep_write(sqe, file, request.buffer, request.length, request.offset);
    } else {
      io_uring_prep_read(sqe, file, request.buffer, request.length, request.offset);
    }
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, request.tag);
    untaken_.push_back(request.tag);
    ++in_flight_;
  }

  // Gives prepared entries to the kernel and waits for `wait` completions. A lasting error breaks the ring:
  // the requests that the kernel has not taken get that error as their result.
  void Enter(unsigned wait, std::chrono::nanoseconds timeout) {
    int result = 0;
    if (wait == 0) {
      result = io_uring_submit(&ring_);
    } else {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
      __kernel_timespec limit{};
      limit.tv_sec = seconds.count();
      limit.tv_nsec = (timeout - seconds).count();
      io_uring_cqe* cqe = nullptr;
      result = io_uring_submit_and_wait_timeout(&ring_, &cqe, wait, &limit, nullptr);
    }
    while (untaken_.size() > io_uring_sq_ready(&ring_)) untaken_.pop_front();
    if (result >= 0 || result == -EINTR || result == -ETIME) return;
    if (result == -EAGAIN || result == -EBUSY || result == -ENOMEM) {
      os::SleepFor(std::chrono::milliseconds(1));  // the kernel is short of memory; the next call tries again
      return;
    }
    broken_ = result;
    for (const uint64_t tag : untaken_) {
      if (tag == kWakeTag) continue;
      refused_.push_back(IoResult{tag, broken_});
      --in_flight_;
    }
    untaken_.clear();
  }

  size_t Reap(std::span<IoResult> results, bool* woken) {
    size_t count = 0;
    while (count < results.size() && !refused_.empty()) {
      results[count++] = refused_.back();
      refused_.pop_back();
    }
    io_uring_cqe* cqe = nullptr;
    while (count < results.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      if (cqe->user_data == kWakeTag) {
        wake_armed_ = false;
        *woken = true;
      } else {
        results[count++] = IoResult{cqe->user_data, cqe->res};
        --in_flight_;
      }
      io_uring_cqe_seen(&ring_, cqe);
    }
    return count;
  }

  // Keeps one read of the event counter in flight, so that Wake ends a wait for completions.
  void ArmWake() {
    if (wake_armed_ || (wake_ups_ == WakeUps::kNotTheMaker && os::ThisThreadId() == maker_)) return;
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return;
    io_uring_prep_read(sqe, wake_fd_, &wake_count_, sizeof(wake_count_), 0);
    io_uring_sqe_set_data64(sqe, kWakeTag);
    untaken_.push_back(kWakeTag);
    wake_armed_ = true;
  }

  bool DrainUntil(os::SteadyClock::time_point deadline) {
    IoResult dropped[16];
    bool woken = false;
    while (ring_open_ && in_flight_ > 0) {
      if (Reap(dropped, &woken) > 0) continue;
      const auto left = deadline - os::SteadyClock::now();
      if (left <= std::chrono::nanoseconds::zero() || broken_ != 0) return false;
      Enter(1, left);
    }
    return true;
  }

  const size_t capacity_;
  const size_t file_count_;
  const WakeUps wake_ups_;
  const os::ThreadId maker_ = os::ThisThreadId();
  // Used by the driving thread alone. Wake uses only the descriptor.
  io_uring ring_{};
  bool ring_open_ = false;
  int wake_fd_ = -1;
  uint64_t wake_count_ = 0;  // the kernel writes here while the wake-up is armed
  bool wake_armed_ = false;
  size_t in_flight_ = 0;
  std::deque<uint64_t> untaken_;  // tags of the entries that the kernel has not taken, in their order
  int broken_ = 0;                // the error after which the ring takes nothing any more
  std::vector<IoResult> refused_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine(const std::vector<int>& files, size_t capacity,
                                                          WakeUps wake_ups) {
  SPILLWAY_CHECK(capacity > 0);
  auto engine = std::make_unique<UringEngine>(capacity, files.size(), wake_ups);
  SPILLWAY_RETURN_IF_ERROR(engine->Start(files));
  return std::unique_ptr<IoEngine>(std::move(engine));
}

}  // namespace spillway::io
