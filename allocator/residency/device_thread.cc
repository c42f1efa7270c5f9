#include "allocator/residency/device_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "allocator/memory/test_points.h"
#include "io/os/clock.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

// While transfers are under way, the pause between two polls is a quarter of the time since one last moved
// on, within these bounds. The end of a transfer is thus seen late by at most a quarter of its time, and a
// long transfer costs few polls.
constexpr int64_t kShortestPollNanos = 20'000;
constexpr int64_t kLongestPollNanos = 500'000;
constexpr auto kPollLaunches = std::chrono::microseconds(200);  // nothing is under way but the job's own work
constexpr auto kSleepWhenIdle = std::chrono::milliseconds(200);
constexpr auto kPauseScanInterval =
    std::chrono::milliseconds(10);  // the shortest wait after a failed eviction
// How long the end of the process waits for the thread, which may be in a call of the driver.
constexpr auto kLongestJoin = std::chrono::milliseconds(500);

}  // namespace

DeviceThread::DeviceThread(Core* core, std::function<PollResult()> poll)
    : core_(core), poll_(std::move(poll)) {}

DeviceThread::~DeviceThread() { Stop(); }

absl::Status DeviceThread::Start() {
  return thread_.Start("spillway-device", [this] { Loop(); });
}

bool DeviceThread::Stop() {
  {
    os::MutexLock lock(&wake_mu_);
    stop_ = true;
    woken_ = true;
  }
  wake_.NotifyAll();
  if (!thread_.JoinFor(kLongestJoin)) left_behind_ = true;
  return !left_behind_;
}

void DeviceThread::Wake() {
  {
    os::MutexLock lock(&wake_mu_);
    woken_ = true;
  }
  wake_.NotifyOne();
}

void DeviceThread::Loop() {
  os::SetTimerSlack(std::chrono::microseconds(1));  // sleeps of 20 us end after 20 us, not 70
  const CudaDriver* const driver = core_->parts.driver;
  const CUresult current = driver->cuCtxSetCurrent(core_->parts.context);
  // No call of this thread succeeds without a context.
  if (current != CUDA_SUCCESS)
    core_->error.Fail(driver->ToStatus(current, "making the device's context current"));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  for (;;) {
    {
      os::MutexLock lock(&wake_mu_);
      if (stop_) return;
    }
    const PollResult result = core_->stopped.load() ? EndWaits() : poll_();
    SPILLWAY_COUNT(kPoll, 0);
    if (result.moved) last_moved_ = os::Clock::System()->NowNanos();
    Sleep(result);
  }
}

// Nothing moves any more after a device error. EndWaits wakes a thread that had just begun to wait when the
// error came.
DeviceThread::PollResult DeviceThread::EndWaits() {
  core_->standstill.EndWaits();
  const TableLock lock(core_->table);
  core_->table.changed.NotifyAll();
  return {};
}

void DeviceThread::Sleep(const PollResult& result) {
  if (result.progress) return;
  std::chrono::nanoseconds pause = kSleepWhenIdle;
  bool looks_for_safety = false;  // against a forgotten wake-up
  if (!core_->stopped.load()) {
    switch (result.ahead) {
      case Ahead::kTransfers: {
        const int64_t still = os::Clock::System()->NowNanos() - last_moved_;
        pause = std::chrono::nanoseconds(std::clamp(still / 4, kShortestPollNanos, kLongestPollNanos));
        break;
      }
      case Ahead::kLaunches: pause = kPollLaunches; break;
      case Ahead::kTime: pause = kPauseScanInterval; break;
      case Ahead::kNothing: looks_for_safety = true; break;
    }
  }
  os::MutexLock lock(&wake_mu_);
  if (!woken_ && !stop_) {
    if (looks_for_safety) {
      wake_.WaitRechecking(&wake_mu_, pause);
    } else {
      wake_.WaitFor(&wake_mu_, pause);
    }
  }
  woken_ = false;
}

}  // namespace spillway::allocator
