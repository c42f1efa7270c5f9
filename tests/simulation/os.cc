// The simulated operating system: locks, conditions, time, words and the end of a broken invariant.

#include <algorithm>
#include <string>

#include "io/os/barrier.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/log.h"
#include "io/os/sync.h"
#include "tests/simulation/os.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {
OsSettings os_settings;
}  // namespace

OsSettings& settings_of_os() { return os_settings; }
}  // namespace spillway::simulation

namespace spillway::os {

using simulation::Scheduler;
using simulation::scheduler;
using simulation::Task;

// ---- Locks.

void Mutex::Take() {
  Task* const self = scheduler().self();
  while (holder_ != nullptr) {
    ++waiters_;
    scheduler().Block("a lock", this);
    --waiters_;
  }
  holder_ = self;
  self->held.push_back(this);
  scheduler().DrainMine();
}

void Mutex::Give() {
  Task* const self = scheduler().self();
  if (holder_ != self) scheduler().Fail("a lock is given up by a task that does not hold it");
  if (look_) {
    scheduler().HoldSwitches();
    look_();
    scheduler().AllowSwitches();
  }
  scheduler().DrainMine();
  std::erase(self->held, this);
  holder_ = nullptr;
  if (waiters_ == 0) return;
  for (Task* task : scheduler().Alive()) {
    if (task->state == Task::State::kBlocked && task->waits_on == this) scheduler().Unblock(task);
  }
}

void Mutex::Lock() {
  if (Scheduler::current() == nullptr) return;
  const Task* const self = scheduler().self();
  for (const Mutex* other : self->held) {
    if (other->rank() >= rank_) {
      scheduler().Fail("a lock of rank " + std::to_string(static_cast<int>(rank_)) +
                       " is taken under one of rank " + std::to_string(static_cast<int>(other->rank())));
    }
  }
  scheduler().SwitchPoint();
  Take();
}

void Mutex::Unlock() {
  if (Scheduler::current() == nullptr) return;
  Give();
  scheduler().SwitchPoint();
}

bool Mutex::TryLock() {
  if (Scheduler::current() == nullptr) return true;
  scheduler().SwitchPoint();
  if (holder_ != nullptr) return false;
  Take();
  return true;
}

void Mutex::AssertLocked() const {
  if (Scheduler::current() == nullptr) return;
  if (holder_ != scheduler().self()) scheduler().Fail("a lock that must be held is not");
}

// ---- Conditions.

bool CondVar::WaitUntil(Mutex* mutex, int64_t wake_at, bool rechecks) {
  Task* const self = scheduler().self();
  self->rechecked = false;
  waiters_.push_back(self);
  mutex->Give();
  const bool timed_out = scheduler().Block("a condition", this, wake_at, rechecks);
  std::erase(waiters_, self);
  scheduler().SwitchPoint();
  mutex->Take();
  self->rechecked = timed_out && rechecks;
  return !timed_out;
}

void CondVar::Wait(Mutex* mutex) { WaitUntil(mutex, simulation::kNever, false); }

bool CondVar::WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) {
  return WaitUntil(mutex, scheduler().now() + timeout.count(), false);
}

bool CondVar::WaitRechecking(Mutex* mutex, std::chrono::nanoseconds) {
  return WaitUntil(mutex, simulation::kNever, true);
}

void CondVar::NotifyOne() {
  if (Scheduler::current() == nullptr || waiters_.empty()) return;
  const uint32_t which = scheduler().Choose(static_cast<uint32_t>(waiters_.size()));
  Task* const task = waiters_[which];
  waiters_.erase(waiters_.begin() + which);
  scheduler().Unblock(task);
}

void CondVar::NotifyAll() {
  if (Scheduler::current() == nullptr) return;
  for (Task* task : waiters_) scheduler().Unblock(task);
  waiters_.clear();
}

// ---- Barriers, time, words.

bool RegisterAsymmetricBarrier() { return simulation::settings_of_os().asymmetric_barrier; }

const Clock* Clock::System() {
  class SimulatedClock : public Clock {
   public:
    int64_t NowNanos() const override { return Scheduler::current() == nullptr ? 0 : scheduler().Tick(); }
  };
  static const SimulatedClock clock;
  return &clock;
}

void SetLogLevel(LogLevel) {}

void ReportLine(const std::string& text) {
  if (simulation::settings_of_os().say) simulation::settings_of_os().say(text);
}

void ReportFatal(const std::string& text) { ReportLine(text); }

void Log(LogLevel, const std::string& text) { ReportLine(text); }

void CheckFailed(const char* file, int line, const char* condition) {
  const std::string text =
      std::string("CHECK failed at ") + file + ":" + std::to_string(line) + ": " + condition;
  scheduler().Fail(text);
}

}  // namespace spillway::os
