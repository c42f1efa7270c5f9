// Mutex and condition variable over std::mutex, with annotations for clang's thread-safety analysis. All
// locks below integration are of this kind. With SPILLWAY_LOCK_CHECKS (tests of the core, sanitizer builds)
// the process stops when a thread takes a lock whose rank is not above the ranks of all locks that it has, or
// asserts a lock that it does not have. The wrapper exists because clang cannot analyze plain std::mutex, and
// ThreadSanitizer reports false races through the distribution's uninstrumented absl::Mutex.
// docs/threading.md lists the ranks.

#ifndef SPILLWAY_IO_OS_SYNC_H_
#define SPILLWAY_IO_OS_SYNC_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "io/os/lock_rank.h"

namespace spillway::os {

// Code with the checks and code without them cannot be linked together unnoticed, because their names differ.
#ifdef SPILLWAY_LOCK_CHECKS
inline namespace with_lock_checks {
#endif

// A mutex with a rank. TryLock returns false when another thread has it.
class ABSL_LOCKABLE Mutex {
 public:
  explicit Mutex(LockRank rank) : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // The rank is checked before the wait, so a wrong order is found even if it does not deadlock this time.
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    CheckRankBeforeLock();
    mutex_.lock();
    RecordLocked();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    RecordUnlocked();
    mutex_.unlock();
  }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    if (!mutex_.try_lock()) return false;
    RecordLocked();
    return true;
  }
  // Aborts unless this thread has locked the mutex. Only builds with lock checks do so.
  void AssertLocked() const ABSL_ASSERT_EXCLUSIVE_LOCK();

 private:
  friend class CondVar;
#ifdef SPILLWAY_LOCK_CHECKS
  void CheckRankBeforeLock() const;
  void RecordLocked() const;
  void RecordUnlocked() const;
#else
  void CheckRankBeforeLock() const {}
  void RecordLocked() const {}
  void RecordUnlocked() const {}
#endif

  std::mutex mutex_;
  [[maybe_unused]] const LockRank rank_;  // constant after construction; read by the checks
};

// Locks for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A wait releases the mutex and takes it again before it returns. Spurious wake-ups happen, so wait in a
// loop.
class CondVar {
 public:
  // Waits until the thread is woken.
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns true when the thread was woken, false when `timeout` has passed. For a thread that has something
  // to do by then.
  bool WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The same for a thread that is always woken by the event for which it waits, and checks again only for
  // safety. The simulation reports a lost wake-up when such a thread goes on because `interval` has passed.
  bool WaitRechecking(Mutex* mutex, std::chrono::nanoseconds interval) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return WaitFor(mutex, interval);
  }
  // Wakes one waiting thread, or all. The caller need not have the mutex.
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
