#include "io/engine/fault_engine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <utility>

namespace spillway::io {
namespace {

struct NamedError {
  const char* name;
  int error;
};
constexpr NamedError kErrors[] = {
    {"EIO", EIO},         {"ENODATA", ENODATA}, {"EILSEQ", EILSEQ}, {"ETIMEDOUT", ETIMEDOUT},
    {"ENOLINK", ENOLINK}, {"ENOSPC", ENOSPC},   {"EDQUOT", EDQUOT}, {"EROFS", EROFS},
    {"EAGAIN", EAGAIN},   {"ENOMEM", ENOMEM},
};

constexpr std::chrono::nanoseconds kSchedulePollInterval = std::chrono::milliseconds(1);

class FaultEngine : public IoEngine {
 public:
  FaultEngine(std::unique_ptr<IoEngine> inner, std::vector<DriveFault> faults, const os::Clock* clock)
      : inner_(std::move(inner)), faults_(std::move(faults)), clock_(clock) {}

  const char* name() const override { return inner_->name(); }
  size_t capacity() const override { return inner_->capacity(); }

  void Submit(std::span<const IoRequest> requests) override {
    if (began_ == 0) began_ = clock_->NowNanos();
    for (const IoRequest& request : requests) {
      const DriveFault* const fault = FaultOf(request.op);
      if (fault == nullptr) {
        inner_->Submit({&request, 1});
      } else if (fault->error == 0) {
        kept_.push_back(request);
      } else {
        answers_.push_back({request.tag, -fault->error});
      }
    }
  }

  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    SubmitKept();
    const size_t count = std::min(results.size(), answers_.size());
    std::copy_n(answers_.begin(), count, results.begin());
    answers_.erase(answers_.begin(), answers_.begin() + static_cast<std::ptrdiff_t>(count));
    if (count > 0) return count;
    return inner_->Poll(results, kept_.empty() ? timeout : std::min(timeout, kSchedulePollInterval));
  }

  void Wake() override { inner_->Wake(); }
  bool Stop(std::chrono::nanoseconds timeout) override { return inner_->Stop(timeout); }
  void AbandonAfterFork() override { inner_->AbandonAfterFork(); }

 private:
  const DriveFault* FaultOf(IoOp op) const {
    const int64_t now = clock_->NowNanos() - began_;
    const auto applies = [op, now](const DriveFault& fault) {
      return (op == IoOp::kRead ? fault.reads : fault.writes) && now >= fault.from_nanos &&
             now - fault.from_nanos < fault.for_nanos;
    };
    const auto found = std::find_if(faults_.begin(), faults_.end(), applies);
    return found == faults_.end() ? nullptr : &*found;
  }

  // Submits the kept requests for which the drive is back.
  void SubmitKept() {
    std::erase_if(kept_, [this](const IoRequest& request) {
      if (FaultOf(request.op) != nullptr) return false;
      inner_->Submit({&request, 1});
      return true;
    });
  }

  const std::unique_ptr<IoEngine> inner_;
  const std::vector<DriveFault> faults_;
  const os::Clock* const clock_;

  // Used by the caller's one thread alone.
  int64_t began_ = 0;              // time of the first request, in ns of the clock; 0: none yet
  std::vector<IoRequest> kept_;    // kept back by a silence
  std::vector<IoResult> answers_;  // errors that are due
};

std::string DescribeFault(const DriveFault& fault) {
  const std::string which =
      fault.directory ? "directory " + std::to_string(*fault.directory) : std::string("each directory");
  const std::string operations = fault.reads && fault.writes ? "all requests"
                                 : fault.reads               ? "reads"
                                                             : "writes";
  std::string answer = fault.error == 0 ? "no answer" : std::to_string(fault.error);
  for (const NamedError& named : kErrors) {
    if (named.error == fault.error) answer = named.name;
  }
  return operations + " of " + which + " get " + answer + " from " +
         std::to_string(fault.from_nanos / 1'000'000) + " ms on for " +
         std::to_string(fault.for_nanos / 1'000'000) + " ms";
}

}  // namespace

int DriveErrno(std::string_view name) {
  for (const NamedError& named : kErrors) {
    if (name == named.name) return named.error;
  }
  return 0;
}

std::string DescribeFaults(const std::vector<DriveFault>& faults) {
  std::string text;
  for (const DriveFault& fault : faults) text += (text.empty() ? "" : "; ") + DescribeFault(fault);
  return text;
}

std::unique_ptr<IoEngine> MakeFaultEngine(std::unique_ptr<IoEngine> inner,
                                          const std::vector<DriveFault>& faults, size_t directory,
                                          const os::Clock* clock) {
  std::vector<DriveFault> ours;
  std::copy_if(faults.begin(), faults.end(), std::back_inserter(ours), [directory](const DriveFault& fault) {
    return fault.directory.value_or(directory) == directory;
  });
  if (ours.empty()) return inner;
  return std::make_unique<FaultEngine>(std::move(inner), std::move(ours), clock);
}

}  // namespace spillway::io
