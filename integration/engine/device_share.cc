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
// A job asks the others, and the driver, once for this part of the device.
constexpr uint64_t kIncrements = 64;
constexpr int kRecheckMilliseconds = 50;
constexpr const char* kJobsHave = "GPU memory that other jobs have";
// This is 2 s: memory that is being released at this moment may be free soon.
constexpr int kMaxScansInVain = 40;

// Returns the error when no job that shares the device could make way.
absl::Status NotForJobs(uint64_t least, uint64_t all_jobs) {
  return absl::ResourceExhaustedError(
      absl::StrCat("GPU memory is short: ", os::BytesText(least), " must be there at once, and the GPU has ",
                   os::BytesText(all_jobs), " for all jobs that share it; the rest is in use elsewhere"));
}

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
  ShareNeed none;
  none.most_bytes = options_.total_bytes;
  MostLocked(none);
}

// ---- The account.

// The bytes that the others have registered are theirs, and so is anything else that others have of the
// device.
uint64_t DeviceShare::MostLocked(const ShareNeed& need, uint64_t* all_jobs) {
  shares_.Scan();
  uint64_t most = shares_.MostToTake(options_.total_bytes), all = options_.total_bytes;
  if (const std::optional<uint64_t> free = options_.free_bytes()) {
    const auto beside_reserve = [&](uint64_t bytes) {
      return bytes - std::min(bytes, options_.reserve_bytes);
    };
    most = std::min(most, beside_reserve(need.taken_bytes + *free));
    all = std::min(all, beside_reserve(need.taken_bytes + *free + shares_.taken_by_peers()));
  }
  if (all_jobs != nullptr) *all_jobs = all;
  most = std::max(std::min(most, need.most_bytes), share_);
  growable_.store(most - share_, std::memory_order_relaxed);
  return most;
}

bool DeviceShare::RaiseLocked(uint64_t bytes, uint64_t most) {
  if (bytes <= share_) return true;
  const uint64_t rounded = (bytes + increment_bytes_ - 1) / increment_bytes_ * increment_bytes_;
  const uint64_t share = std::min(rounded, most) / kUnitBytes * kUnitBytes;
  if (share <= share_) return false;
  if (!shares_.Register(share, options_.total_bytes)) return false;
  share_ = share;
  growable_.store(most - std::min(most, share), std::memory_order_relaxed);
  residency_.load()->SetShare(share);
  return share_ >= bytes;
}

// Bytes that have no place elsewhere stay in the share.
void DeviceShare::LowerLocked(uint64_t bytes) {
  const uint64_t rounded = (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  if (rounded >= share_) return;
  const uint64_t before = share_;
  share_ = std::min(share_, residency_.load()->SetShare(rounded));
  shares_.Register(share_, options_.total_bytes);  // if that fails, the others see more than there is
  growable_.fetch_add(before - share_, std::memory_order_relaxed);
}

void DeviceShare::ShrinkLocked(const ShareNeed& need) {
  uint64_t most = need.most_bytes;
  if (need.paused_bytes > 0) most = state_ == State::kAway ? 0 : std::min(most, need.wanted_bytes);
  LowerLocked(std::max(need.taken_bytes, most));
}

void DeviceShare::PublishWantedLocked(uint64_t bytes) {
  const uint64_t wanted = std::min(std::max(bytes, awaited_), options_.total_bytes);
  wanted_.Register(wanted - std::min(wanted, share_), UINT64_MAX);
}

void DeviceShare::RecordActiveLocked() {
  active_at_ = options_.clock->NowNanos();
  if (std::exchange(state_, State::kActive) == State::kAway && options_.on_back) options_.on_back();
}

// ---- For the residency.

void DeviceShare::Grow(uint64_t bytes) {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || stopped_.load()) return;
  const os::MutexLock lock(&mu_);
  RecordActiveLocked();
  if (bytes <= share_) return;
  const ShareNeed need = residency->GetShareNeed();
  RaiseLocked(std::min(bytes, need.most_bytes), MostLocked(need));
}

void DeviceShare::Shrink() {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || stopped_.load()) return;
  residency->PrepareShare(residency->GetShareNeed().taken_bytes);
  const os::MutexLock lock(&mu_);
  ShrinkLocked(residency->GetShareNeed());
}

DeviceShare::Shortage DeviceShare::TryAwait(allocator::Residency* residency, uint64_t bytes) {
  const os::MutexLock lock(&mu_);
  const ShareNeed need = residency->GetShareNeed();
  if (!need.serving || stopped_.load()) return {};
  const uint64_t least = std::min(std::max(bytes, need.least_bytes), need.most_bytes);
  const uint64_t wanted = std::min(need.wanted_bytes + need.away_bytes, need.most_bytes);
  if (share_ < least) {
    Shortage lack;
    lack.least = least;
    const uint64_t most = MostLocked(need, &lack.all_jobs);
    if (most >= least) RaiseLocked(std::max(least, wanted), most);
    if (share_ < least) {
      awaited_ = std::max(awaited_, least);
      PublishWantedLocked(0);
      lack.cannot_leave = cannot_leave_;
      return lack;
    }
  }
  // This includes blocks that the owner's thread is still pausing.
  if (state_ != State::kActive || need.away_bytes > 0) {
    RaiseLocked(wanted, MostLocked(need));
    residency->Resume(kForIdleness, /*wait=*/false)
        .IgnoreError();  // the device's error, which its launches report
  }
  RecordActiveLocked();
  return {};
}

absl::Status DeviceShare::Await(uint64_t bytes, absl::FunctionRef<std::string()> name) {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || TryAwait(residency, bytes).least == 0) return absl::OkStatus();
  const os::Wait wait(options_.waits, os::WaitKind::kShare, name());
  const LaunchWait launch;
  {
    const os::MutexLock lock(&mu_);
    if (waiting_++ == 0) cannot_leave_ = absl::OkStatus();
  }
  absl::Status status;
  bool done = false;
  int scans_in_vain = 0;  // in a row
  while (status.ok() && !done) {
    status = launch.Once(-1, kRecheckMilliseconds, name, kJobsHave);
    if (status.ok()) status = wait.Check();
    if (!status.ok()) break;
    const Shortage lack = TryAwait(residency, bytes);
    done = lack.least == 0;
    scans_in_vain = lack.all_jobs < lack.least ? scans_in_vain + 1 : 0;
    if (scans_in_vain == kMaxScansInVain) status = NotForJobs(lack.least, lack.all_jobs);
    if (!done && !lack.cannot_leave.ok()) status = lack.cannot_leave;
  }
  const os::MutexLock lock(&mu_);
  if (--waiting_ == 0) awaited_ = 0;
  return status;
}

// ---- The owner's thread.

void DeviceShare::Poll() {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || stopped_.load()) return;
  bool leaves;
  {
    const os::MutexLock lock(&mu_);
    const ShareNeed need = residency->GetShareNeed();
    // A job that was away counts, too: it names new blocks.
    if (std::exchange(launches_, need.launches) != need.launches) RecordActiveLocked();
    const uint64_t most = MostLocked(need);
    const bool away = state_ == State::kAway;
    if (!away && need.wanted_bytes > share_) {
      RaiseLocked(need.wanted_bytes, most);
    } else if (need.paused_bytes > 0 || share_ > need.most_bytes) {
      ShrinkLocked(need);
    }
    const bool idle =
        options_.idle.count() > 0 && options_.clock->NowNanos() - active_at_ >= options_.idle.count();
    // The others do not make way for a job that is idle itself, unless one of its threads waits.
    PublishWantedLocked(away || idle ? 0 : need.wanted_bytes);
    wanted_.Scan();
    leaves = idle && state_ == State::kActive && share_ > 0 && wanted_.taken_by_peers() > 0;
  }
  if (leaves) GiveUp(residency);
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
  if (status.ok()) residency->PrepareShare(residency->GetShareNeed().taken_bytes);
  uint64_t given;
  {
    const os::MutexLock lock(&mu_);
    const bool back = std::exchange(state_, State::kActive) == State::kActive;
    if (!status.ok()) {  // no place for the bytes, or a capture: tried again after another idle time
      active_at_ = options_.clock->NowNanos();
      // A thread that waits would keep what another job may wait for.
      if (!absl::IsUnavailable(status))
        cannot_leave_ = absl::ResourceExhaustedError(std::string(status.message()));
      return;
    }
    if (back) return residency->Resume(kForIdleness, /*wait=*/false).IgnoreError();  // as above
    state_ = State::kAway;
    const uint64_t before = share_;
    ShrinkLocked(residency->GetShareNeed());
    given = before - share_;
    if (options_.on_left) options_.on_left(began, stats);
  }
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
