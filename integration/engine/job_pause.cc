#include "integration/engine/job_pause.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/engine/launch_wait.h"
#include "io/os/bytes_text.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::PausedBy;
using allocator::PauseScope;
using allocator::PauseStats;

constexpr PauseScope kFromOutside = {PausedBy::kOutside, 0};
constexpr auto kEnd = std::chrono::milliseconds(100);
// A capture in progress ends within moments; a request from outside waits this long for it.
constexpr int64_t kCaptureNanos = 10'000'000'000;
constexpr auto kTryAgain = std::chrono::milliseconds(10);

uint64_t LeftBytes(const PauseStats& stats) {
  return stats.clean_bytes + stats.host_bytes + stats.disk_bytes + stats.dropped_bytes + stats.unused_bytes;
}

std::string PauseText(const PauseStats& stats) {
  std::string text = absl::StrCat("paused: ", os::BytesText(LeftBytes(stats)), " left the GPU");
  if (stats.pinned_bytes > 0) absl::StrAppend(&text, ", ", os::BytesText(stats.pinned_bytes), " must stay");
  if (stats.failed_bytes > 0) {
    absl::StrAppend(&text, ", ", os::BytesText(stats.failed_bytes), " could not be copied (", stats.failure,
                    ")");
  }
  return absl::StrCat(text, "; launches wait until `spillway resume ", ::getpid(), "`");
}

}  // namespace

JobPause::JobPause(const Devices* devices, os::WaitList* waits)
    : devices_(devices), waits_(waits), resumed_(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)) {}

JobPause::~JobPause() {
  Stop();
  if (resumed_ >= 0) ::close(resumed_);
}

// ---- By the job.

uint32_t JobPause::TagOf(const std::string& tag) {
  const os::MutexLock lock(&mu_);
  return tags_.try_emplace(tag, static_cast<uint32_t>(tags_.size()) + 1).first->second;
}

absl::StatusOr<PauseScope> JobPause::ScopeOf(const std::string& tag) const {
  PauseScope scope;
  if (tag.empty()) return scope;
  const os::MutexLock lock(&mu_);
  const auto found = tags_.find(tag);
  if (found == tags_.end()) {
    const auto name = [](std::string* out, const auto& entry) {
      absl::StrAppend(out, "'", entry.first, "'");
    };
    return absl::InvalidArgumentError(
        absl::StrCat("no spillway.region() has had the tag '", tag, "'",
                     tags_.empty() ? "" : absl::StrCat("; known: ", absl::StrJoin(tags_, ", ", name))));
  }
  scope.tag = found->second;
  return scope;
}

absl::Status JobPause::Pause(const std::string& tag, PauseStats* stats) {
  SPILLWAY_ASSIGN_OR_RETURN(const PauseScope scope, ScopeOf(tag));
  const int64_t began = os::Clock::System()->NowNanos();
  SPILLWAY_RETURN_IF_ERROR(PauseDevices(scope, stats));
  const os::MutexLock lock(&mu_);
  metrics_.Add(*stats);
  AddInterval(began, PausedBy::kJob, tag, *stats);
  return absl::OkStatus();
}

absl::Status JobPause::Resume(const std::string& tag, bool wait) {
  SPILLWAY_ASSIGN_OR_RETURN(const PauseScope scope, ScopeOf(tag));
  {
    const os::MutexLock lock(&mu_);
    EndIntervals(PausedBy::kJob, tag);
  }
  return ResumeDevices(scope, wait);
}

void JobPause::AddInterval(int64_t began, PausedBy by, const std::string& tag, const PauseStats& stats,
                           int device) {
  const os::MutexLock lock(&intervals_mu_);
  if (intervals_.size() == kMaxIntervals) intervals_.pop_front();
  intervals_.push_back({began, os::Clock::System()->NowNanos(), 0, by, tag, stats.clean_bytes,
                        stats.host_bytes, stats.disk_bytes, stats.dropped_bytes, device});
}

// A resume of everything resumes regions, too.
void JobPause::EndIntervals(PausedBy by, const std::string& tag, int device) {
  const os::MutexLock lock(&intervals_mu_);
  const int64_t now = os::Clock::System()->NowNanos();
  for (ReportedPause& pause : intervals_) {
    if (pause.resumed == 0 && pause.by == by && pause.device == device && (tag.empty() || pause.tag == tag))
      pause.resumed = now;
  }
}

std::vector<ReportedPause> JobPause::Intervals() const {
  const os::MutexLock lock(&intervals_mu_);
  return {intervals_.begin(), intervals_.end()};
}

// The devices are paused one after the other, since they share host memory, drives, and often the link.
absl::Status JobPause::PauseDevices(const PauseScope& scope, PauseStats* stats) {
  absl::Status status;
  std::vector<allocator::Residency*> paused;
  devices_->ForEach([&](const ServedDevice& served) {
    if (!status.ok()) return;
    status = served.residency->Pause(scope, stats);
    if (status.ok()) paused.push_back(served.residency.get());
  });
  if (status.ok()) return status;
  for (allocator::Residency* residency : paused) residency->Resume(scope, /*wait=*/false).IgnoreError();
  return status;
}

absl::Status JobPause::ResumeDevices(const PauseScope& scope, bool wait) {
  absl::Status status;
  // All begin to come back before the first is waited for.
  for (const bool waits : {false, true}) {
    if (waits && !wait) break;
    devices_->ForEach([&](const ServedDevice& served) {
      absl::Status resumed = served.residency->Resume(scope, waits);
      if (status.ok()) status = std::move(resumed);
    });
  }
  return status;
}

// ---- From outside.

absl::Status JobPause::Ask(bool pause) {
  bool pausing;
  {
    const os::MutexLock lock(&mu_);
    if (stop_) return absl::FailedPreconditionError("the job is ending");
    if (!started_) {
      SPILLWAY_RETURN_IF_ERROR(thread_.Start("spill-pause", [this] { Loop(); }));
      started_ = true;
    }
    wanted_ = pause;
    error_.clear();
    pausing = state_ == State::kPausing;
    changed_.NotifyAll();
  }
  // A pause in progress does not wait for blocks that are resumed.
  return pausing && !pause ? ResumeDevices(kFromOutside, /*wait=*/false) : absl::OkStatus();
}

absl::Status JobPause::Toggle() {
  bool wanted;
  {
    const os::MutexLock lock(&mu_);
    wanted = wanted_;
  }
  return Ask(!wanted);
}

void JobPause::Loop() {
  for (;;) {
    bool pause;
    {
      os::MutexLock lock(&mu_);
      while (!stop_ && wanted_ == (state_ == State::kPaused)) changed_.Wait(&mu_);
      if (stop_) return;
      pause = wanted_;
      state_ = pause ? State::kPausing : State::kResuming;
      if (pause) {
        launches_wait_ = true;
        uint64_t drained;
        if (resumed_ >= 0 && ::read(resumed_, &drained, sizeof(drained)) < 0)
          drained = 0;  // it was not readable
      }
    }
    pause ? PauseFromOutside() : ResumeFromOutside();
  }
}

void JobPause::PauseFromOutside() {
  PauseStats stats;
  const int64_t began = os::Clock::System()->NowNanos();
  absl::Status status;
  for (;;) {
    stats = PauseStats();
    status = PauseDevices(kFromOutside, &stats);
    if (!absl::IsUnavailable(status) || os::Clock::System()->NowNanos() - began > kCaptureNanos) break;
    os::SleepFor(kTryAgain);
    const os::MutexLock lock(&mu_);
    if (!wanted_ || stop_) break;
  }
  {
    const os::MutexLock lock(&mu_);
    last_ = stats;
    if (status.ok()) {
      state_ = State::kPaused;
      paused_since_ = began;
      metrics_.Add(stats);
      AddInterval(began, PausedBy::kOutside, "", stats);
    } else {
      state_ = State::kRunning;
      wanted_ = false;
      error_ = std::string(status.message());
      LetLaunchesGo();
    }
  }
  os::ReportLine(status.ok() ? PauseText(stats)
                             : absl::StrCat("not paused: ", std::string(status.message())));
}

void JobPause::ResumeFromOutside() {
  ResumeDevices(kFromOutside, /*wait=*/false)
      .IgnoreError();  // a failure without a wait is the device's error
  {
    const os::MutexLock lock(&mu_);
    state_ = State::kRunning;
    metrics_.outside_nanos += static_cast<uint64_t>(os::Clock::System()->NowNanos() - paused_since_);
    EndIntervals(PausedBy::kOutside, "");
    LetLaunchesGo();
  }
  os::ReportLine("resumed");
}

void JobPause::LetLaunchesGo() {
  launches_wait_ = false;
  const uint64_t one = 1;
  if (resumed_ >= 0 && ::write(resumed_, &one, sizeof(one)) < 0) return;  // it is readable already
}

void JobPause::RecordIdle(int device, int64_t began, const PauseStats& stats) {
  AddInterval(began, PausedBy::kIdle, "", stats, device);
}

void JobPause::RecordIdleEnd(int device) { EndIntervals(PausedBy::kIdle, "", device); }

std::string JobPause::StateJson() const {
  static constexpr const char* kNames[] = {"running", "pausing", "paused", "resuming"};
  const os::MutexLock lock(&mu_);
  nlohmann::ordered_json state;
  const bool about_to = started_ && error_.empty() && wanted_ != (state_ == State::kPaused);
  state["state"] = about_to ? (wanted_ ? "pausing" : "resuming") : kNames[static_cast<int>(state_)];
  if (!error_.empty()) state["error"] = error_;
  state.update(PauseJson(last_));
  return state.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

PauseMetrics JobPause::metrics() const {
  const os::MutexLock lock(&mu_);
  PauseMetrics metrics = metrics_;
  metrics.paused_now = state_ == State::kPaused;
  if (metrics.paused_now)
    metrics.outside_nanos += static_cast<uint64_t>(os::Clock::System()->NowNanos() - paused_since_);
  return metrics;
}

absl::Status JobPause::AwaitResume(absl::FunctionRef<std::string()> name, const os::Atomic<bool>& stopped) {
  const os::Wait wait(waits_, os::WaitKind::kPause, absl::StrCat(name(), ": the job is paused from outside"));
  const LaunchWait launch;
  for (;;) {
    {
      const os::MutexLock lock(&mu_);
      if (stop_) return absl::CancelledError("the process is ending");
      if (!launches_wait_ || stopped.load()) return absl::OkStatus();
    }
    SPILLWAY_RETURN_IF_ERROR(launch.Once(resumed_, resumed_ >= 0 ? 1000 : 100, name, "the end of a pause"));
  }
}

// ---- The end.

void JobPause::Stop() {
  {
    const os::MutexLock lock(&mu_);
    if (stop_) return;
    stop_ = true;
    LetLaunchesGo();
    changed_.NotifyAll();
  }
  thread_.JoinFor(kEnd);  // a thread that moves blocks ends with the device
}

void JobPause::AbandonAfterFork() {
  thread_.Abandon();
  if (resumed_ >= 0) ::close(resumed_);
}

}  // namespace spillway::integration
