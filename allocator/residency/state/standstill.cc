#include "allocator/residency/state/standstill.h"

#include <chrono>

#include "allocator/memory/test_points.h"
#include "io/os/check.h"
#include "io/os/clock.h"

namespace spillway::allocator {
namespace {

// Longest wait for work that may itself wait for something that a waiting thread does next.
constexpr int64_t kPatienceNanos = 1'000'000'000;

}  // namespace

Standstill::Standstill(bool on, StreamClock* clock, const os::Atomic<bool>* stopped, os::WaitList* waits)
    : on_(on), clock_(clock), stopped_(stopped), waits_(waits) {}

void Standstill::EnterSlow() {
  os::MutexLock lock(&mu_);
  if (under_way_) {
    const os::Wait wait(waits_, os::WaitKind::kArrival, "the end of a standstill");
    while (under_way_ && !stopped_->load()) changed_.WaitRechecking(&mu_, std::chrono::milliseconds(100));
  }
  ++launches_;
}

void Standstill::LeaveSlow() {
  os::MutexLock lock(&mu_);
  --launches_;
}

void Standstill::EndWaits() {
  os::MutexLock lock(&mu_);  // no thread is between its check and its wait
  changed_.NotifyAll();
}

bool Standstill::Join(bool* joined) {
  SPILLWAY_CHECK(on_);
  if (!*joined) {
    *joined = true;
    if (joined_++ == 0) {
      began_ = os::Clock::System()->NowNanos();
      alone_ = drained_ = false;
      os::MutexLock lock(&mu_);
      under_way_ = true;
    }
  }
  if (!drained_) drained_ = Drained() || os::Clock::System()->NowNanos() - began_ > kPatienceNanos;
  return drained_;
}

// The order matters. The streams' numbers are read only after no launch is being made, so they include every
// launch that was let through before the standstill. New launches wait in EnterSlow.
bool Standstill::Drained() {
  if (SPILLWAY_MUTANT(kStandstillUndrained)) return true;
  if (!alone_) {
    {
      os::MutexLock lock(&mu_);
      alone_ = launches_ == 0;
    }
    if (!alone_) return false;
    queued_ = clock_->CurrentOfAll();
  }
  std::erase_if(queued_, [this](const TimelineValue& value) {
    if (clock_->Completed(value)) return true;
    clock_->Cover(value).IgnoreError();  // capturing until a later poll, or the device has an error
    return false;
  });
  return queued_.empty();
}

void Standstill::Leave(bool* joined) {
  if (!*joined) return;
  *joined = false;
  if (--joined_ > 0) return;
  {
    os::MutexLock lock(&mu_);
    under_way_ = false;
  }
  changed_.NotifyAll();
}

}  // namespace spillway::allocator
