#include "tests/fakes/memory_engine.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "io/os/sync.h"

namespace spillway::io {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

class MemoryEngine : public IoEngine {
 public:
  explicit MemoryEngine(const MemoryEngineOptions& options) : options_(options), files_(options.files) {}

  const char* name() const override { return "memory"; }
  size_t capacity() const override { return options_.capacity; }

  void Submit(std::span<const IoRequest> requests) override {
    if (options_.on_submit) std::ranges::for_each(requests, options_.on_submit);
    os::MutexLock lock(&mu_);
    for (const IoRequest& request : requests) {
      const int32_t result = Transfer(request);
      const SteadyTime now = std::chrono::steady_clock::now();
      SteadyTime due = std::max(now, busy_until_);
      if (options_.bytes_per_second > 0) {
        due +=
            std::chrono::nanoseconds(static_cast<int64_t>(request.length * 1e9 / options_.bytes_per_second));
      }
      busy_until_ = due;
      waiting_.push_back(Due{due + options_.latency, IoResult{request.tag, result}});
    }
  }

  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    const SteadyTime deadline = std::chrono::steady_clock::now() + timeout;
    os::MutexLock lock(&mu_);
    while (true) {
      const SteadyTime now = std::chrono::steady_clock::now();
      size_t count = 0;
      while (count < results.size() && !waiting_.empty() && waiting_.front().at <= now) {
        results[count++] = waiting_.front().result;
        waiting_.pop_front();
      }
      if (count > 0 || woken_ || now >= deadline) {
        woken_ = false;
        return count;
      }
      const SteadyTime until = waiting_.empty() ? deadline : std::min(deadline, waiting_.front().at);
      wake_.WaitFor(&mu_, until - now);
    }
  }

  void Wake() override {
    os::MutexLock lock(&mu_);
    woken_ = true;
    wake_.NotifyAll();
  }

  bool Stop(std::chrono::nanoseconds) override { return true; }

 private:
  struct Due {
    SteadyTime at;
    IoResult result;
  };
  struct File {
    std::map<uint64_t, std::vector<char>> pages;  // by page number
    uint64_t size = 0;
  };

  // As strict as a disk: whole pages only.
  int32_t Transfer(const IoRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (request.file >= files_.size()) return -EBADF;
    if (request.offset % kPageBytes != 0 || request.length % kPageBytes != 0 ||
        reinterpret_cast<uintptr_t>(request.buffer) % kPageBytes != 0) {
      return -EINVAL;
    }
    File& file = files_[request.file];
    uint64_t length = request.length;
    if (request.op == IoOp::kRead) {
      length = request.offset >= file.size ? 0 : std::min(length, file.size - request.offset);
    }
    for (uint64_t moved = 0; moved < length; moved += kPageBytes) {
      char* buffer = static_cast<char*>(request.buffer) + moved;
      std::vector<char>& page = file.pages[(request.offset + moved) / kPageBytes];
      page.resize(kPageBytes);
      if (request.op == IoOp::kWrite) {
        std::memcpy(page.data(), buffer, kPageBytes);
      } else {
        std::memcpy(buffer, page.data(), kPageBytes);
      }
    }
    if (request.op == IoOp::kWrite) file.size = std::max(file.size, request.offset + length);
    return static_cast<int32_t>(length);
  }

  const MemoryEngineOptions options_;
  os::Mutex mu_{os::LockRank::kEngine};
  os::CondVar wake_;
  std::vector<File> files_ ABSL_GUARDED_BY(mu_);
  std::deque<Due> waiting_ ABSL_GUARDED_BY(mu_);  // in the order in which they become due
  SteadyTime busy_until_ ABSL_GUARDED_BY(mu_){};
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

std::unique_ptr<IoEngine> MakeMemoryEngine(const MemoryEngineOptions& options) {
  return std::make_unique<MemoryEngine>(options);
}

}  // namespace spillway::io
