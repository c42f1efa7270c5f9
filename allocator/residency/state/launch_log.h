// LaunchLog: the launches of one device, in the order in which the gate let them through. It numbers them,
// keeps the timeline value of each of the last 65,536, and records on each block the uses that launches make
// of it. Launching threads write it without a lock, inside a read-side section or under a pin. PlanRunner and
// the run-ahead bound read it. Nothing here fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_LAUNCH_LOG_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_LAUNCH_LOG_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/memory/test_points.h"
#include "allocator/residency/state/block_table.h"
#include "allocator/residency/state/stream_clock.h"
#include "io/os/atomic.h"
#include "policy/model/units.h"

namespace spillway::allocator {

class LaunchLog {
 public:
  // Number of past launches whose timeline values are known.
  static constexpr uint64_t kRing = 1 << 16;
  // Number of launches of other streams that LatestOn passes over.
  static constexpr uint32_t kScannedBack = 64;

  explicit LaunchLog(StreamClock* clock) : clock_(clock) {}

  // Numbers a launch that uses `bytes` and has been enqueued on `stream`, and returns its index. Lock-free.
  TimelineValue Add(StreamIndex stream, uint64_t bytes, policy::LaunchIndex* index) {
    SPILLWAY_DELAY_POINT("launch.before_value");
    const TimelineValue value{stream, clock_->Next(stream, bytes)};
    *index = count_.fetch_add(1, std::memory_order_acq_rel);
    values_[*index % kRing].store(value.Packed(), std::memory_order_release);
    SPILLWAY_DELAY_POINT("launch.numbered");
    return value;
  }
  // The number of launches let through, which is the index of the next one. Any thread.
  policy::LaunchIndex count() const { return count_.load(); }
  policy::LaunchIndex recent_count() const { return count_.load(std::memory_order_relaxed); }

  // The timeline value of that launch. None (kNoStream) while it is being written, before the launch is let
  // through, and when the launch is too long ago.
  TimelineValue ValueOf(policy::LaunchIndex index) const {
    const policy::LaunchIndex next = count_.load(std::memory_order_acquire);
    if (index >= next || next - index >= kRing) return {};
    return TimelineValue::Unpack(values_[index % kRing].load(std::memory_order_acquire));
  }
  // The timeline value of the latest launch up to `index` that went to `stream`. None (kNoStream) when the
  // last kScannedBack launches up to there went elsewhere.
  TimelineValue LatestOn(StreamIndex stream, policy::LaunchIndex index) const {
    for (uint32_t back = 0; back < kScannedBack && back <= index; ++back) {
      if (const TimelineValue value = ValueOf(index - back); value.stream == stream) return value;
    }
    return {};
  }
  // Whether the GPU has completed that launch. Records an event when none covers the launch yet.
  bool Completed(policy::LaunchIndex index) const;

 private:
  StreamClock* const clock_;
  os::Atomic<policy::LaunchIndex> count_{0};
  // The packed timeline value of launch i is at i % kRing. Its stream number shows whether the launch has
  // completed.
  const std::unique_ptr<os::Atomic<uint64_t>[]> values_ { new os::Atomic<uint64_t>[ kRing ]() };
};

// Records that the launch with this timeline value uses `block`. Lock-free, inside a read-side section or
// under a pin. `thread` is ReadSections::NumberOf the calling thread's section; 0 when it has none.
// RecordUseAnew is the slow half, for a thread that has no entry of that stream yet.
void RecordUseAnew(const StreamClock& clock, Block* block, TimelineValue value, uint8_t thread);
inline void RecordUse(const StreamClock& clock, Block* block, TimelineValue value, uint8_t thread) {
  for (size_t i = 0; thread != 0 && i < Block::GateSide::kUses; ++i) {
    const uint8_t owner = block->gate.use_owners[i].load(std::memory_order_relaxed);
    if (owner == 0) break;
    if (owner != thread) continue;
    const TimelineValue old = TimelineValue::Unpack(block->gate.uses[i].load(std::memory_order_relaxed));
    if (old.stream != value.stream) continue;
    if (old.number < value.number) block->gate.uses[i].store(value.Packed(), std::memory_order_relaxed);
    return;
  }
  RecordUseAnew(clock, block, value, thread);
}
// Does the same with the calling thread's own section.
void RecordUse(const StreamClock& clock, Block* block, TimelineValue value);
// Does the same for launch `index`, which is noted as the block's last use.
inline void RecordLaunchUse(const StreamClock& clock, Block* block, TimelineValue value, uint8_t thread,
                            policy::LaunchIndex index) {
  RecordUse(clock, block, value, thread);
  block->gate.used.store(true, std::memory_order_relaxed);
  block->gate.last_use.store(index + 1, std::memory_order_relaxed);
}
// The block's uses, including recordStream's, that the GPU has not completed yet. The gate must be closed,
// and no thread may be inside a section.
std::vector<TimelineValue> UncompletedUses(const StreamClock& clock, Block* block);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_LAUNCH_LOG_H_
