// Meters of transfers: the rates at which bytes move between the GPU and each tier, by the job's own
// transfers and by the measured link. The evictor, the faulter and LinkProbe report; plans, the clock of
// launches and reports read. Nothing fails; each class names the threads that may call it.

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

// Bytes a second of transfers, as a moving mean over the last tens of MiB. The owner does not count time
// without transfers. Not thread-safe; the owner's lock guards it.
class RateMean {
 public:
  // Adds time during which transfers were under way.
  void AddNanos(int64_t nanos) { nanos_ += nanos; }
  // Adds a transfer of which `bytes` have moved, after its time was added. Ends are seen in bursts, each
  // after the time of all its transfers, so only sums over several bursts make a rate.
  void AddBytes(uint64_t bytes) {
    bytes_ += bytes;
    if (nanos_ <= 0 || bytes_ < kFirstBytes) return;
    rate_ = static_cast<double>(bytes_) * 1e9 / static_cast<double>(nanos_);
    if (bytes_ < kMaxBytes) return;
    bytes_ /= 2;
    nanos_ /= 2;
  }
  // Bytes a second; 0 when too little has moved.
  double rate() const { return rate_; }

 private:
  static constexpr uint64_t kFirstBytes = 4 << 20;
  static constexpr uint64_t kMaxBytes = 128 << 20;  // beyond this, older bytes weigh half

  int64_t nanos_ = 0;
  uint64_t bytes_ = 0;
  double rate_ = 0;
};

// The speed of one copy queue while it has work. Any thread.
class CopyQueueMeter {
 public:
  // A transfer was given to the queue at that time (nanoseconds of a steady clock).
  void Begin(int64_t now) {
    os::MutexLock lock(&mu_);
    if (under_way_++ == 0) busy_since_ = now;
  }
  // The transfer has ended, and `bytes` of it have moved: 0 when it was canceled.
  void End(uint64_t bytes, int64_t now) {
    os::MutexLock lock(&mu_);
    mean_.AddNanos(now - busy_since_);
    busy_since_ = now;
    --under_way_;
    mean_.AddBytes(bytes);
    rate_.store(mean_.rate(), std::memory_order_relaxed);
  }
  // Bytes a second; 0 when too little has moved.
  double rate() const { return rate_.load(std::memory_order_relaxed); }

 private:
  os::Mutex mu_{os::LockRank::kTier};
  uint64_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t busy_since_ ABSL_GUARDED_BY(mu_) = 0;
  RateMean mean_ ABSL_GUARDED_BY(mu_);
  std::atomic<double> rate_{0};  // the mean's, read alone: pairs with nothing
};

// The copy queues of the disk. LinkMeter has those of host memory.
enum class CopyQueue : int { kDiskOut, kDiskIn, kCount };

enum class LinkDirection : int { kOut, kIn };

// Rates of a device's link to host memory, by direction: those that plain copies reached in a measurement,
// alone and while both directions run (LinkProbe), and those of the job's own transfers. When the ratio of
// the measured two is known, time during which the other direction was busy, too, counts as the shorter time
// that the bytes would have taken alone. The transfers' rate thus does not depend on how much of the time
// both directions ran. Any thread.
class LinkMeter {
 public:
  // A transfer of the job was given to the link at that time (nanoseconds of a steady clock).
  void Begin(LinkDirection direction, int64_t now);
  // The transfer has ended, and `bytes` of it have moved: 0 when it was canceled.
  void End(LinkDirection direction, uint64_t bytes, int64_t now);
  // Sets the rates of plain copies. Replaces an earlier measurement.
  void SetMeasured(const policy::LinkRates& alone, const policy::LinkRates& both);

  struct Rates {
    policy::LinkRates alone, both;
  };
  // Rates in bytes a second. `alone` is that of the job's transfers in each direction while the other is
  // idle, as a moving mean; the measured rate until enough has moved; 0 when nothing is known. `both` is the
  // same while both directions run; 0 when not measured.
  Rates rates() const;
  // The rate of the job's transfers alone; 0 when too little has moved.
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
  int64_t now_ ABSL_GUARDED_BY(mu_) = 0;  // time up to here has been counted
  std::optional<Rates> measured_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_TRANSFER_METERS_H_
