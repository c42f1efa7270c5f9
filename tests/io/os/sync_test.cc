#include <gtest/gtest.h>

#include <thread>

#include "io/os/sync.h"

#ifndef SPILLWAY_LOCK_CHECKS
#error "this test is of a build that checks locks"
#endif

namespace spillway::os {
namespace {

TEST(LockChecksTest, LocksOfRisingRankMayBeTaken) {
  Mutex residency(LockRank::kResidency);
  Mutex tier(LockRank::kTier);
  MutexLock outer(&residency);
  MutexLock inner(&tier);
  residency.AssertLocked();
  tier.AssertLocked();
}

TEST(LockChecksDeathTest, TwoLocksInTheWrongOrderEndTheProcess) {
  Mutex residency(LockRank::kResidency);
  Mutex tier(LockRank::kTier);
  EXPECT_DEATH(
      {
        MutexLock outer(&tier);
        MutexLock inner(&residency);
      },
      "taken_rank");
}

TEST(LockChecksDeathTest, TwoLocksOfOneRankEndTheProcess) {
  Mutex one(LockRank::kTier);
  Mutex other(LockRank::kTier);
  EXPECT_DEATH(
      {
        MutexLock outer(&one);
        MutexLock inner(&other);
      },
      "taken_rank");
}

TEST(LockChecksDeathTest, AssertLockedWithoutTheLockEndsTheProcess) {
  Mutex mutex(LockRank::kTier);
  EXPECT_DEATH(mutex.AssertLocked(), "found");
  // A lock that another thread has taken is not this thread's.
  mutex.Lock();
  std::thread other([&] { EXPECT_DEATH(mutex.AssertLocked(), "found"); });
  other.join();
  mutex.Unlock();
}

TEST(LockChecksDeathTest, GivingUpALockThatIsNotHeldEndsTheProcess) {
  Mutex mutex(LockRank::kTier);
  EXPECT_DEATH(mutex.Unlock(), "i >= 0");
}

TEST(LockChecksTest, ALockIsNotHeldWhileItsConditionIsWaitedFor) {
  Mutex mutex(LockRank::kResidency);
  CondVar changed;
  bool seen = false;
  mutex.Lock();
  std::thread other([&] {
    MutexLock lock(&mutex);
    seen = true;
    changed.NotifyAll();
  });
  while (!seen) changed.Wait(&mutex);
  mutex.AssertLocked();
  mutex.Unlock();
  other.join();
}

}  // namespace
}  // namespace spillway::os
