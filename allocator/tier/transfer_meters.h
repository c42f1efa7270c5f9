// Meters of transfers: how fast bytes move between the GPU and each tier, as the job's own transfers and the
// measured link show it. The evictor, the faulter and LinkProbe report; plans, the clock of launches and
// reports read. Nothing fails; each names who may call.

#ifndef SPILLWAY_ALLOCATOR_TIER_TRANSFER_METERS_H_
#define SPILLWAY_ALLOCATOR_TIER_TRANSFER_METERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "io/os/sync.h"
#include "policy/model/machine.h"

namespace spillway::allocator {

// Bytes a second of transfers, as a moving mean over the last tens of MiB. Time without transfers is not to
// be counted. Not thread-safe: guarded by the owner's lock.
class RateMean {
 public:
  // Transfers were under way for so long.
  void AddNanos(int64_t nanos) { nanos_ += nanos; }
  // A transfer has ended, after the time that it took was added. `bytes` of it have moved. Ends are seen in
  // bursts, each after the time of them all: only sums over several bursts make a rate.
  void AddBytes(uint64_t bytes) {
    bytes_ += bytes;
    if (nanos_ <= 0 || bytes_ < kFirstBytes) return;
    rate_ = static_cast<double>(bytes_) * 1e9 / static_cast<double>(nanos_);
    if (bytes_ < kMostBytes) return;
    bytes_ /= 2;
    nanos_ /= 2;
  }
  // Bytes a second; 0: too little has moved to say.
  double rate() const { return rate_; }

 private:
  static constexpr uint64_t kFirstBytes = 4 << 20;
  static constexpr uint64_t kMostBytes = 128 << 20;  // then what is older weighs half

  int64_t nanos_ = 0;
  uint64_t bytes_ = 0;
  double rate_ = 0;
};

// The speed of one copy queue while it has anything to do. Any thread.
class CopyQueueMeter {
 public:
  // A transfer was given to the queue at that time (nanoseconds of a steady clock).
  void Begin(int64_t now) {
    os::MutexLock lock(&mu_);
    if (under_way_++ == 0) busy_since_ = now;
  }
  // The transfer has ended, and `bytes` of it have moved: 0 when it was called off.
  void End(uint64_t bytes, int64_t now) {
    os::MutexLock lock(&mu_);
    mean_.AddNanos(now - busy_since_);
    busy_since_ = now;
    --under_way_;
    mean_.AddBytes(bytes);
    rate_.store(mean_.rate(), std::memory_order_relaxed);
  }
  // Bytes a second; 0: too little has moved to say.
  double rate() const { return rate_.load(std::memory_order_relaxed); }

 private:
  os::Mutex mu_{os::LockRank::kTier};
  uint64_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t busy_since_ ABSL_GUARDED_BY(mu_) = 0;
  RateMean mean_ ABSL_GUARDED_BY(mu_);
  std::atomic<double> rate_{0};  // the mean's, read alone: pairs with nothing
};

// Of the disk. LinkMeter has those of host memory.
enum class CopyQueue : int { kDiskOut, kDiskIn, kCount };

enum class LinkDirection : int { kOut, kIn };

// What a device's link to host memory does, by direction: what plain copies were measured to reach alone and
// while both directions run (LinkProbe), and the rate of the job's own transfers. Where the ratio of the two
// is known, time during which the other direction was busy too counts as the shorter time that the bytes
// would have taken alone: the transfers' rate does not depend on how much of it both directions ran. Any
// thread.
class LinkMeter {
 public:
  // A transfer of the job was given to the link at that time (nanoseconds of a steady clock).
  void Begin(LinkDirection direction, int64_t now);
  // The transfer has ended, and `bytes` of it have moved: 0 when it was called off.
  void End(LinkDirection direction, uint64_t bytes, int64_t now);
  // What plain copies reach. Replaces what was measured before.
  void SetMeasured(const policy::LinkRates& alone, const policy::LinkRates& both);

  struct Rates {
    policy::LinkRates alone, both;
  };
  // Bytes a second of the job's transfers in each direction, while the other is idle: a moving mean. Until enough has
  // moved, what was measured; 0: nothing is known. The same while both directions run; 0: not measured.
  Rates rates() const;
  // The rate of the job's transfers alone; 0: too little has moved to say.
  double OwnRate(LinkDirection direction) const;
  bool busy(LinkDirection direction) const;

  std::optional<Rates> measured() const;

 private:
  struct Side {
    uint64_t under_way = 0;
    RateMean mean;
  };

  Side& At(LinkDirection direction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return sides_[static_cast<size_t>(direction)];
  }
  void AdvanceLocked(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double RateLocked(LinkDirection direction) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double RatioLocked(LinkDirection direction) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable os::Mutex mu_{os::LockRank::kTier};
  std::array<Side, 2> sides_ ABSL_GUARDED_BY(mu_);
  int64_t now_ ABSL_GUARDED_BY(mu_) = 0;  // up to here time has been counted
  std::optional<Rates> measured_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_TRANSFER_METERS_H_
