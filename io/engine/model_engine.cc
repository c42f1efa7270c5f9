#include "io/engine/model_engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/os/clock.h"

namespace spillway::io {
namespace {

int64_t Now() { return os::Clock::System()->NowNanos(); }

class ModelEngine : public IoEngine {
 public:
  ModelEngine(std::unique_ptr<IoEngine> inner, const DiskModelOptions& options)
      : inner_(std::move(inner)), model_(options) {}

  const char* name() const override { return inner_->name(); }
  size_t capacity() const override { return inner_->capacity(); }

  void Submit(std::span<const IoRequest> requests) override {
    const int64_t now = Now();
    for (const IoRequest& request : requests) {
      due_at_[request.tag] = model_.DueAt(request.op, request.length, now);
    }
    inner_->Submit(requests);
  }

  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    const int64_t begin = Now();
    const int64_t deadline = begin + std::min<int64_t>(timeout.count(), INT64_MAX - begin);
    // A result that has arrived but is not due must not end the call, nor use up a Wake; woken_ remembers the
    // Wake.
    while (true) {
      TakeArrived(std::chrono::nanoseconds(0));
      const size_t count = TakeDue(results, Now());
      if (woken_.exchange(false) || count > 0 || Now() >= deadline) return count;
      TakeArrived(std::chrono::nanoseconds(std::max<int64_t>(0, NextDue(deadline) - Now())));
    }
  }

  void Wake() override {
    woken_.store(true);
    inner_->Wake();
  }

  bool Stop(std::chrono::nanoseconds timeout) override { return inner_->Stop(timeout); }
  void AbandonAfterFork() override { inner_->AbandonAfterFork(); }

 private:
  struct Arrived {
    int64_t due;
    IoResult result;
  };

  void TakeArrived(std::chrono::nanoseconds timeout) {
    std::array<IoResult, 64> results;
    const size_t count = inner_->Poll(results, timeout);
    for (size_t i = 0; i < count; ++i) {
      const auto found = due_at_.find(results[i].tag);
      // A result without a request is passed on, because TransferQueue judges it.
      arrived_.push_back({found == due_at_.end() ? 0 : found->second, results[i]});
      if (found != due_at_.end()) due_at_.erase(found);
    }
  }

  size_t TakeDue(std::span<IoResult> results, int64_t now) {
    size_t count = 0;
    size_t kept = 0;
    for (const Arrived& one : arrived_) {
      if (count < results.size() && one.due <= now) {
        results[count++] = one.result;
      } else {
        arrived_[kept++] = one;
      }
    }
    arrived_.resize(kept);
    return count;
  }

  int64_t NextDue(int64_t otherwise) const {
    for (const Arrived& one : arrived_) otherwise = std::min(otherwise, one.due);
    return otherwise;
  }

  const std::unique_ptr<IoEngine> inner_;
  std::atomic<bool> woken_{false};  // stored by Wake before it wakes the inner engine; exchanged by Poll

  // Used by the caller's one thread alone.
  DiskModel model_;
  std::unordered_map<uint64_t, int64_t> due_at_;  // of the requests that the inner engine has, by tag
  std::vector<Arrived> arrived_;                  // given by the inner engine, not handed out yet
};

std::string Rate(const char* name, double bytes_per_second) {
  char text[64];
  std::snprintf(text, sizeof(text), "%s %.2f GB/s", name, bytes_per_second / 1e9);
  return text;
}

}  // namespace

std::string DescribeModel(const DiskModelOptions& options) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (options.read_bytes_per_second > 0) add(Rate("read", options.read_bytes_per_second));
  if (options.write_bytes_per_second > 0) add(Rate("write", options.write_bytes_per_second));
  if (options.latency_nanos > 0) add("latency " + std::to_string(options.latency_nanos / 1000) + " us");
  return text;
}

DiskModelOptions DiskModels::Of(uint32_t directory) const {
  DiskModelOptions options = all;
  const auto found = own.find(directory);
  if (found == own.end()) return options;
  const DiskModelOptions& mine = found->second;
  if (mine.read_bytes_per_second > 0) options.read_bytes_per_second = mine.read_bytes_per_second;
  if (mine.write_bytes_per_second > 0) options.write_bytes_per_second = mine.write_bytes_per_second;
  if (mine.latency_nanos > 0) options.latency_nanos = mine.latency_nanos;
  return options;
}

bool DiskModels::Limits() const {
  return all.Limits() || std::ranges::any_of(own, [](const auto& one) { return one.second.Limits(); });
}

std::string DescribeModels(const DiskModels& models) {
  std::string text = DescribeModel(models.all);
  for (const auto& [directory, options] : models.own)
    text += (text.empty() ? "directory " : "; directory ") + std::to_string(directory) + ": " +
            DescribeModel(options);
  return text;
}

int64_t DiskModel::DueAt(IoOp op, uint32_t length, int64_t now) {
  const bool read = op == IoOp::kRead;
  const double rate = read ? options_.read_bytes_per_second : options_.write_bytes_per_second;
  int64_t& served_until = served_until_[read ? 0 : 1];
  const auto takes = rate > 0 ? static_cast<int64_t>(std::llround(length * 1e9 / rate)) : int64_t{0};
  served_until = std::max(served_until, now) + takes;
  return served_until + options_.latency_nanos;
}

std::unique_ptr<IoEngine> MakeModelEngine(std::unique_ptr<IoEngine> inner, const DiskModelOptions& options) {
  return std::make_unique<ModelEngine>(std::move(inner), options);
}

}  // namespace spillway::io
