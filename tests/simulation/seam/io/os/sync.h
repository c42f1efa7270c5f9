// The simulation's form of io/os/sync.h. Locking, unlocking and waiting are switch points; ranks and owners
// are always checked; what a lock protects can be looked at whenever the lock is released.

#ifndef SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_SYNC_H_
#define SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_SYNC_H_

#include <chrono>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "io/os/lock_rank.h"
#include "tests/simulation/scheduler.h"

namespace spillway::os {

class ABSL_LOCKABLE Mutex {
 public:
  explicit Mutex(LockRank rank) : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
  void Unlock() ABSL_UNLOCK_FUNCTION();
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
  void AssertLocked() const ABSL_ASSERT_EXCLUSIVE_LOCK();

  // ---- Of the simulation.

  LockRank rank() const { return rank_; }
  // `look` is called each time before the lock is released, with the lock taken and no other task going on.
  void set_look(std::function<void()> look) { look_ = std::move(look); }
  bool held() const { return holder_ != nullptr; }

 private:
  friend class CondVar;
  void Take();
  void Give();

  const LockRank rank_;
  simulation::Task* holder_ = nullptr;
  int waiters_ = 0;
  std::function<void()> look_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool WaitRechecking(Mutex* mutex, std::chrono::nanoseconds interval) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void NotifyOne();
  void NotifyAll();

 private:
  bool WaitUntil(Mutex* mutex, int64_t wake_at, bool rechecks);

  std::vector<simulation::Task*> waiters_;
};

}  // namespace spillway::os

#endif  // SPILLWAY_TESTS_SIMULATION_SEAM_IO_OS_SYNC_H_
