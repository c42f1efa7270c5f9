#include "io/os/sync.h"

#include "io/os/check.h"

namespace spillway::os {

#ifdef SPILLWAY_LOCK_CHECKS
namespace {
// The locks that this thread has, in the order in which it took them.
constexpr int kMaxTaken = 16;
thread_local const Mutex* taken[kMaxTaken];
thread_local LockRank taken_rank[kMaxTaken];
thread_local int taken_count = 0;
}  // namespace

void Mutex::CheckRankBeforeLock() const {
  for (int i = 0; i < taken_count; ++i) SPILLWAY_CHECK(taken_rank[i] < rank_);
}

void Mutex::RecordLocked() const {
  SPILLWAY_CHECK(taken_count < kMaxTaken);
  taken[taken_count] = this;
  taken_rank[taken_count] = rank_;
  ++taken_count;
}

void Mutex::RecordUnlocked() const {
  int i = taken_count - 1;
  while (i >= 0 && taken[i] != this) --i;
  SPILLWAY_CHECK(i >= 0);
  for (; i + 1 < taken_count; ++i) {
    taken[i] = taken[i + 1];
    taken_rank[i] = taken_rank[i + 1];
  }
  --taken_count;
}

void Mutex::AssertLocked() const {
  bool found = false;
  for (int i = 0; i < taken_count; ++i) found = found || taken[i] == this;
  SPILLWAY_CHECK(found);
}
#else
void Mutex::AssertLocked() const {}
#endif

void CondVar::Wait(Mutex* mutex) {
  mutex->RecordUnlocked();
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  condition_.wait(lock);
  lock.release();
  mutex->RecordLocked();
}

bool CondVar::WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) {
  mutex->RecordUnlocked();
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  const bool woken = condition_.wait_for(lock, timeout) == std::cv_status::no_timeout;
  lock.release();
  mutex->RecordLocked();
  return woken;
}

}  // namespace spillway::os
