#include "io/os/sync.h"

#include "io/os/check.h"

namespace spillway::os {

#ifdef SPILLWAY_LOCK_CHECKS
namespace {
// The locks that this thread holds, in the order in which it took them.
constexpr int kMaxHeld = 16;
thread_local const Mutex* held[kMaxHeld];
thread_local LockRank held_rank[kMaxHeld];
thread_local int held_count = 0;
}  // namespace

void Mutex::CheckRankBeforeLock() const {
  for (int i = 0; i < held_count; ++i) SPILLWAY_CHECK(held_rank[i] < rank_);
}

void Mutex::NoteLocked() const {
  SPILLWAY_CHECK(held_count < kMaxHeld);
  held[held_count] = this;
  held_rank[held_count] = rank_;
  ++held_count;
}

void Mutex::NoteUnlocked() const {
  int i = held_count - 1;
  while (i >= 0 && held[i] != this) --i;
  SPILLWAY_CHECK(i >= 0);
  for (; i + 1 < held_count; ++i) {
    held[i] = held[i + 1];
    held_rank[i] = held_rank[i + 1];
  }
  --held_count;
}

void Mutex::AssertHeld() const {
  bool found = false;
  for (int i = 0; i < held_count; ++i) found = found || held[i] == this;
  SPILLWAY_CHECK(found);
}
#else
void Mutex::AssertHeld() const {}
#endif

void CondVar::Wait(Mutex* mutex) {
  mutex->NoteUnlocked();
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  condition_.wait(lock);
  lock.release();
  mutex->NoteLocked();
}

bool CondVar::WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) {
  mutex->NoteUnlocked();
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  const bool woken = condition_.wait_for(lock, timeout) == std::cv_status::no_timeout;
  lock.release();
  mutex->NoteLocked();
  return woken;
}

}  // namespace spillway::os
