#include "tests/fakes/faulty_engine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "io/engine/aligned_buffer.h"

namespace spillway::io {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

class FaultyEngine : public IoEngine {
 public:
  FaultyEngine(std::unique_ptr<IoEngine> inner, const FaultPlan& plan,
               std::shared_ptr<FaultCounters> counters)
      : inner_(std::move(inner)),
        plan_(plan),
        counters_(counters ? std::move(counters) : std::make_shared<FaultCounters>()),
        random_(plan.seed) {}

  const char* name() const override { return inner_->name(); }
  size_t capacity() const override { return inner_->capacity(); }

  void Submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) SubmitOne(request);
  }

  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    const SteadyTime deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
      const SteadyTime now = std::chrono::steady_clock::now();
      size_t count = TakeDue(results, now);
      if (count > 0) return count;
      const SteadyTime until = std::min(deadline, NextDue(deadline));
      std::vector<IoResult> arrived(results.size());
      const size_t got = inner_->Poll(arrived, std::max(until - now, SteadyTime::duration::zero()));
      for (size_t i = 0; i < got; ++i) Arrived(arrived[i]);
      count = TakeDue(results, std::chrono::steady_clock::now());
      // The inner one also returns when it is woken; that must end this call too.
      if (count > 0 || std::chrono::steady_clock::now() >= deadline || got == 0) return count;
    }
  }

  void Wake() override { inner_->Wake(); }
  bool Stop(std::chrono::nanoseconds timeout) override { return inner_->Stop(timeout); }
  void AbandonAfterFork() override { inner_->AbandonAfterFork(); }

 private:
  struct Pending {
    IoRequest request;
    std::optional<Fault> fault;
    std::unique_ptr<AlignedBuffer> damaged;  // what is written in place of the caller's bytes
  };
  struct Due {
    SteadyTime at;
    IoResult result;
  };

  std::optional<Fault> Choose(const IoRequest& request) {
    const uint64_t ordinal = request.op == IoOp::kWrite ? ++counters_->writes : ++counters_->reads;
    for (const Fault& fault : plan_.faults) {
      if (fault.op == request.op && ordinal >= fault.first && ordinal - fault.first < fault.count)
        return fault;
    }
    Fault fault{.op = request.op};
    if (Draws(plan_.damage_rate)) {
      fault.kind = std::array{FaultKind::kBitFlip, FaultKind::kMisdirect, FaultKind::kLost}[random_() % 3];
      fault.misdirect = plan_.misdirect;
      if (fault.kind != FaultKind::kLost || request.op == IoOp::kWrite) return fault;
    }
    if (Draws(plan_.duplicate_rate)) {
      fault.kind = FaultKind::kDuplicate;
      return fault;
    }
    if (!Draws(plan_.random_rate)) return std::nullopt;
    switch (random_() % 4) {
      case 0: fault.error = EIO; break;
      case 1: fault.error = random_() % 2 == 0 ? EAGAIN : EINTR; break;
      case 2:
        fault.kind = FaultKind::kShort;
        fault.short_bytes = static_cast<uint32_t>(random_() % request.length);
        break;
      default: fault.kind = FaultKind::kDelay; fault.delay = std::chrono::microseconds(random_() % 3000);
    }
    return fault;
  }

  bool Draws(double rate) { return rate > 0 && std::uniform_real_distribution<>(0, 1)(random_) < rate; }

  void SubmitOne(const IoRequest& original) {
    Pending pending{.request = original, .fault = Choose(original), .damaged = nullptr};
    IoRequest request = original;
    if (pending.fault) {
      ++counters_->injected;
      if (EndAtOnce(original, *pending.fault)) return;
      Damage(&request, &pending);
    }
    pending_[original.tag] = std::move(pending);
    inner_->Submit({&request, 1});
  }

  // Faults for which the inner engine sees nothing.
  bool EndAtOnce(const IoRequest& request, const Fault& fault) {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (fault.kind == FaultKind::kNever) return true;
    if (fault.kind == FaultKind::kErrno) {
      due_.push_back(Due{now, IoResult{request.tag, -fault.error}});
      return true;
    }
    if (fault.kind == FaultKind::kLost) {
      due_.push_back(Due{now, IoResult{request.tag, static_cast<int32_t>(request.length)}});
      return true;
    }
    // A part of a page: what a direct engine could not be asked for, so nothing is moved, and less is
    // claimed.
    if (fault.kind == FaultKind::kShort && fault.short_bytes < kPageBytes) {
      due_.push_back(Due{now, IoResult{request.tag, static_cast<int32_t>(fault.short_bytes)}});
      return true;
    }
    return false;
  }

  void Damage(IoRequest* request, Pending* pending) {
    const Fault& fault = *pending->fault;
    if (fault.kind == FaultKind::kShort) request->length = fault.short_bytes / kPageBytes * kPageBytes;
    if (fault.kind == FaultKind::kMisdirect) request->offset += static_cast<uint64_t>(fault.misdirect);
    if (fault.kind == FaultKind::kBitFlip && request->op == IoOp::kWrite) {
      pending->damaged = std::make_unique<AlignedBuffer>(request->length);
      std::memcpy(pending->damaged->data(), request->buffer, request->length);
      pending->damaged->data()[random_() % request->length] ^= static_cast<char>(1 << random_() % 8);
      request->buffer = pending->damaged->data();
    }
  }

  void Arrived(IoResult result) {
    const auto found = pending_.find(result.tag);
    if (found == pending_.end()) return;
    const Pending pending = std::move(found->second);
    pending_.erase(found);
    SteadyTime at = std::chrono::steady_clock::now();
    if (pending.fault) {
      const Fault& fault = *pending.fault;
      if (fault.kind == FaultKind::kDelay) at += fault.delay;
      if (fault.kind == FaultKind::kTooLong) result.result += static_cast<int32_t>(kPageBytes);
      if (fault.kind == FaultKind::kBitFlip && pending.request.op == IoOp::kRead && result.result > 0) {
        static_cast<char*>(pending.request.buffer)[random_() % static_cast<uint32_t>(result.result)] ^= 1;
      }
      if (fault.kind == FaultKind::kDuplicate) due_.push_back(Due{at, result});
    }
    due_.push_back(Due{at, result});
  }

  size_t TakeDue(std::span<IoResult> results, SteadyTime now) {
    if (plan_.reorder) std::shuffle(due_.begin(), due_.end(), random_);
    size_t count = 0;
    std::vector<Due> later;
    for (Due& due : due_) {
      if (count < results.size() && due.at <= now) {
        results[count++] = due.result;
      } else {
        later.push_back(due);
      }
    }
    due_ = std::move(later);
    return count;
  }

  SteadyTime NextDue(SteadyTime otherwise) const {
    SteadyTime next = otherwise;
    for (const Due& due : due_) next = std::min(next, due.at);
    return next;
  }

  const std::unique_ptr<IoEngine> inner_;
  const FaultPlan plan_;
  const std::shared_ptr<FaultCounters> counters_;
  std::mt19937_64 random_;
  std::map<uint64_t, Pending> pending_;  // by tag
  std::vector<Due> due_;                 // results to hand out
};

}  // namespace

std::unique_ptr<IoEngine> MakeFaultyEngine(std::unique_ptr<IoEngine> inner, const FaultPlan& plan,
                                           std::shared_ptr<FaultCounters> counters) {
  return std::make_unique<FaultyEngine>(std::move(inner), plan, std::move(counters));
}

}  // namespace spillway::io
