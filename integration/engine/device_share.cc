#include "integration/engine/device_share.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "integration/engine/launch_wait.h"
#include "io/os/bytes_text.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::PausedBy;
using allocator::PauseScope;
using allocator::ShareNeed;

constexpr PauseScope kForIdleness = {PausedBy::kIdle, 0};
constexpr uint64_t kUnitBytes = 2 << 20;
// A job asks the others, and the driver, once for so much of the device.
constexpr uint64_t kIncrements = 64;
constexpr int kLookAgainMilliseconds = 50;
constexpr const char* kJobsHave = "GPU memory that other jobs have";

io::NodeShare::Options Ledger(const DeviceShare::Options& options, const char* what) {
  return {.directories = options.directories, .account = options.account + what, .unit_bytes = kUnitBytes};
}

}  // namespace

DeviceShare::DeviceShare(Options options)
    : options_(std::move(options)),
      increment_bytes_(std::max(kUnitBytes, options_.total_bytes / kIncrements / kUnitBytes * kUnitBytes)),
      shares_(Ledger(options_, "")),
      wanted_(Ledger(options_, ", wanted")) {
  const os::MutexLock lock(&mu_);
  active_at_ = options_.clock->NowNanos();
  growable_.store(MostLocked({}));
}

// ---- The account.

// What the others have registered is theirs, and so is what anyone else has of the device.
uint64_t DeviceShare::MostLocked(const ShareNeed& need) {
  shares_.Look();
  uint64_t most = shares_.MostToTake(options_.total_bytes);
  if (const std::optional<uint64_t> free = options_.free_bytes()) {
    const uint64_t there = need.taken_bytes + *free;
    most = std::min(most, there - std::min(there, options_.reserve_bytes));
  }
  most = std::max(most, share_);
  growable_.store(most - share_, std::memory_order_relaxed);
  return most;
}

bool DeviceShare::RaiseLocked(uint64_t bytes, uint64_t most) {
  const uint64_t rounded = (bytes + increment_bytes_ - 1) / increment_bytes_ * increment_bytes_;
  const uint64_t share = std::min(rounded, most) / kUnitBytes * kUnitBytes;
  if (share <= share_) return true;
  if (!shares_.Register(share, options_.total_bytes)) return false;
  share_ = share;
  growable_.store(most - std::min(most, share), std::memory_order_relaxed);
  residency_.load()->SetShare(share);
  return true;
}

// What has no place elsewhere stays in the share.
void DeviceShare::LowerLocked(uint64_t bytes) {
  const uint64_t rounded = (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  if (rounded >= share_) return;
  const uint64_t share = std::min(share_, residency_.load()->SetShare(rounded));
  if (!shares_.Register(share, options_.total_bytes)) return;
  share_ = share;
}

void DeviceShare::ShrinkLocked(const ShareNeed& need) {
  if (need.paused_bytes == 0) return;
  LowerLocked(std::max(need.taken_bytes, state_ == State::kAway ? 0 : need.wanted_bytes));
}

void DeviceShare::TellWantedLocked(uint64_t bytes) {
  const uint64_t wanted = std::min(std::max(bytes, awaited_), options_.total_bytes);
  wanted_.Register(wanted - std::min(wanted, share_), UINT64_MAX);
}

// ---- For the residency.

void DeviceShare::Grow(uint64_t bytes) {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || stopped_.load()) return;
  const ShareNeed need = residency->GetShareNeed();
  const os::MutexLock lock(&mu_);
  if (bytes <= share_) return;
  RaiseLocked(bytes, MostLocked(need));
}

void DeviceShare::Shrink() {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || stopped_.load()) return;
  const ShareNeed need = residency->GetShareNeed();
  const os::MutexLock lock(&mu_);
  ShrinkLocked(need);
}

bool DeviceShare::TryAwait(allocator::Residency* residency, uint64_t bytes) {
  const ShareNeed need = residency->GetShareNeed();
  if (!need.serving || stopped_.load()) return true;
  bool back = false;
  {
    const os::MutexLock lock(&mu_);
    if (!TryAwaitLocked(residency, need, bytes, &back)) return false;
  }
  if (back && options_.on_back) options_.on_back();
  return true;
}

bool DeviceShare::TryAwaitLocked(allocator::Residency* residency, const ShareNeed& need, uint64_t bytes,
                                 bool* back) {
  const uint64_t least = std::min(std::max(bytes, need.least_bytes), options_.total_bytes);
  if (share_ < least) {
    const uint64_t most = MostLocked(need);
    const uint64_t wanted = std::max(least, need.wanted_bytes + need.away_bytes);
    if (most < least || !RaiseLocked(wanted, most) || share_ < least) {
      awaited_ = std::max(awaited_, least);
      TellWantedLocked(0);
      return false;
    }
  }
  active_at_ = options_.clock->NowNanos();
  // Also blocks that the owner's thread is still pausing.
  if (state_ != State::kActive || need.away_bytes > 0) {
    RaiseLocked(need.wanted_bytes + need.away_bytes, MostLocked(need));
    residency->Resume(kForIdleness, /*wait=*/false)
        .IgnoreError();  // the device's error, which its launches report
  }
  *back = std::exchange(state_, State::kActive) == State::kAway;
  return true;
}

absl::Status DeviceShare::Await(uint64_t bytes, absl::FunctionRef<std::string()> name) {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || TryAwait(residency, bytes)) return absl::OkStatus();
  const os::Wait wait(options_.waits, os::WaitKind::kShare, name());
  const LaunchWait launch;
  {
    const os::MutexLock lock(&mu_);
    ++waiting_;
  }
  absl::Status status;
  bool done = false;
  while (status.ok() && !done) {
    status = launch.Once(-1, kLookAgainMilliseconds, name, kJobsHave);
    if (status.ok()) status = wait.Check();
    if (status.ok()) done = TryAwait(residency, bytes);
  }
  const os::MutexLock lock(&mu_);
  if (--waiting_ == 0) awaited_ = 0;
  return status;
}

// ---- The owner's thread.

bool DeviceShare::IsIdleLocked(int64_t now) {
  if (options_.idle.count() == 0 || now - active_at_ < options_.idle.count() || share_ == 0) return false;
  wanted_.Look();
  return wanted_.taken_by_peers() > 0;
}

void DeviceShare::Poll() {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || stopped_.load()) return;
  const ShareNeed need = residency->GetShareNeed();
  bool idle;
  {
    const os::MutexLock lock(&mu_);
    const int64_t now = options_.clock->NowNanos();
    if (std::exchange(launches_, need.launches) != need.launches) active_at_ = now;
    const uint64_t most = MostLocked(need);
    if (need.paused_bytes == 0) RaiseLocked(need.wanted_bytes, most);
    ShrinkLocked(need);
    TellWantedLocked(state_ == State::kAway ? 0 : need.wanted_bytes);
    idle = state_ == State::kActive && IsIdleLocked(now);
  }
  if (idle) GiveUp(residency);
}

void DeviceShare::GiveUp(allocator::Residency* residency) {
  if (!residency->Quiet()) return;  // a kernel runs for long
  {
    const os::MutexLock lock(&mu_);
    state_ = State::kLeaving;
  }
  allocator::PauseStats stats;
  const int64_t began = os::Clock::System()->NowNanos();
  const absl::Status status = residency->Pause(kForIdleness, &stats);
  uint64_t given;
  {
    const os::MutexLock lock(&mu_);
    const bool back = std::exchange(state_, State::kActive) == State::kActive;
    if (!status.ok()) {  // a capture, or no place for the bytes: it is tried again after as long
      active_at_ = options_.clock->NowNanos();
      return;
    }
    if (back) return residency->Resume(kForIdleness, /*wait=*/false).IgnoreError();  // as above
    state_ = State::kAway;
    const uint64_t before = share_;
    LowerLocked(residency->GetShareNeed().taken_bytes);
    given = before - share_;
  }
  if (options_.on_left) options_.on_left(began, stats);
  os::ReportLine(absl::StrCat("idle for ", options_.idle.count() / 1'000'000'000,
                              " s: ", os::BytesText(given),
                              " of GPU memory go to other jobs, and come back for the next launch"));
}

// ---- The end.

void DeviceShare::AbandonAfterFork() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Stop();
  shares_.Close();
  wanted_.Close();
}

}  // namespace spillway::integration
