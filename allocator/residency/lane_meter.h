// LaneMeter: how fast one lane of transfers (to or from host memory or disk) is while it has anything to do: a moving
// mean over the last tens of MiB. Time without transfers does not count.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_LANE_METER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_LANE_METER_H_

#include <atomic>
#include <cstdint>

#include "io/os/sync.h"

namespace spillway::allocator {

// Any thread.
class LaneMeter {
 public:
  // A transfer of so many bytes was given to the lane at that time (nanoseconds of a steady clock).
  void Begin(int64_t now) {
    os::MutexLock lock(&mu_);
    if (under_way_++ == 0) busy_since_ = now;
  }
  // It has ended; `bytes` of it have moved: 0 when it was called off.
  void End(uint64_t bytes, int64_t now) {
    os::MutexLock lock(&mu_);
    bytes_ += bytes;
    busy_nanos_ += now - busy_since_;
    busy_since_ = now;
    --under_way_;
    const double known = rate_.load(std::memory_order_relaxed);
    if (busy_nanos_ <= 0 || bytes_ < (known == 0 ? kFirstBytes : kSampleBytes)) return;
    const double sample = static_cast<double>(bytes_) * 1e9 / static_cast<double>(busy_nanos_);
    rate_.store(known == 0 ? sample : known + (sample - known) / 4, std::memory_order_relaxed);
    bytes_ = 0;
    busy_nanos_ = 0;
  }
  // Bytes a second; 0: too little has moved to say.
  double rate() const { return rate_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kFirstBytes = 4 << 20;
  static constexpr uint64_t kSampleBytes = 16 << 20;

  os::Mutex mu_{os::LockRank::kTier};
  uint64_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t busy_since_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t busy_nanos_ ABSL_GUARDED_BY(mu_) = 0;  // of the sample under way
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<double> rate_{0};  // read alone: pairs with nothing
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_LANE_METER_H_
