// Annotated mutex and condition variable over std::mutex. With SPILLWAY_LOCK_CHECKS (the core's tests, sanitizer builds) a
// thread that takes a lock whose rank is not above those of all that it holds is stopped, and so is one that says it holds
// a lock and does not. Plain std::mutex cannot be analysed by clang, and TSan reports false races through the
// distribution's uninstrumented absl::Mutex. Ranks are listed in docs/threading.md.

#ifndef SPILLWAY_IO_OS_SYNC_H_
#define SPILLWAY_IO_OS_SYNC_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "io/os/lock_rank.h"

namespace spillway::os {

// Code with the checks and code without cannot be linked together unseen: their names differ.
#ifdef SPILLWAY_LOCK_CHECKS
inline namespace with_lock_checks {
#endif

class ABSL_LOCKABLE Mutex {
 public:
  explicit Mutex(LockRank rank) : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    CheckRankBeforeLock();
    mutex_.lock();
    NoteLocked();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    NoteUnlocked();
    mutex_.unlock();
  }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    if (!mutex_.try_lock()) return false;
    NoteLocked();
    return true;
  }
  // Aborts, where locks are checked, unless this thread holds the mutex.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK();

 private:
  friend class CondVar;
#ifdef SPILLWAY_LOCK_CHECKS
  void CheckRankBeforeLock() const;
  void NoteLocked() const;
  void NoteUnlocked() const;
#else
  void CheckRankBeforeLock() const {}
  void NoteLocked() const {}
  void NoteUnlocked() const {}
#endif

  std::mutex mutex_;
  [[maybe_unused]] const LockRank rank_;  // constant after construction; read by the checks
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

// Waits release the mutex and take it again before they return; spurious wake-ups happen, so wait in a loop.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // True when it was woken, false when `timeout` went by. For whoever has something to do by then.
  bool WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The same for whoever is woken by what he waits for and looks again only for safety: the simulation takes a waiter
  // that goes on because `period` went by for a lost wake-up.
  bool WaitRechecking(Mutex* mutex, std::chrono::nanoseconds period) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return WaitFor(mutex, period);
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

#ifdef SPILLWAY_LOCK_CHECKS
}  // namespace with_lock_checks
#endif

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_SYNC_H_
