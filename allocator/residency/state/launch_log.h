// LaunchLog: the launches of one device in the order in which the gate let them through. It numbers them, knows the stamp
// of each of the last 65,536, and leaves stamps on the blocks that they used. Launching threads write it without a lock
// (inside a gate slot or under a pin); plans and the run-ahead bound read it. Nothing here fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_LAUNCH_LOG_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_LAUNCH_LOG_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/residency/state/block_table.h"
#include "allocator/residency/state/stream_clock.h"
#include "allocator/memory/test_points.h"
#include "io/os/atomic.h"
#include "policy/trace/units.h"

namespace spillway::allocator {

class LaunchLog {
 public:
  // So many launches back a stamp is known.
  static constexpr uint64_t kRing = 1 << 16;

  explicit LaunchLog(StreamClock* clock) : clock_(clock) {}

  // A launch that touches `bytes` has been enqueued on `stream`: numbers it, and gives its index. Lock-free.
  Stamp Add(StreamIndex stream, uint64_t bytes, policy::LaunchIndex* index) {
    SPILLWAY_DELAY_POINT("launch.before_stamp");
    const Stamp stamp{stream, clock_->Next(stream, bytes)};
    *index = count_.fetch_add(1, std::memory_order_acq_rel);
    stamps_[*index % kRing].store(stamp.Packed(), std::memory_order_release);
    SPILLWAY_DELAY_POINT("launch.numbered");
    return stamp;
  }
  // Launches let through; the next one's index. Any thread.
  policy::LaunchIndex count() const { return count_.load(); }
  policy::LaunchIndex recent_count() const { return count_.load(std::memory_order_relaxed); }

  // The stamp of that launch; none while it is being written, when it has not been let through, or is too long ago.
  Stamp StampOf(policy::LaunchIndex index) const {
    const policy::LaunchIndex next = count_.load(std::memory_order_acquire);
    if (index >= next || next - index >= kRing) return {};
    return Stamp::Unpack(stamps_[index % kRing].load(std::memory_order_acquire));
  }
  // Whether the GPU has completed that launch. When nobody can tell yet, an event is recorded that will.
  bool Completed(policy::LaunchIndex index) const;

 private:
  StreamClock* const clock_;
  os::Atomic<policy::LaunchIndex> count_{0};
  // Stamp of launch i at i % kRing, packed: tells completed launch indices from stream numbers.
  const std::unique_ptr<os::Atomic<uint64_t>[]> stamps_ { new os::Atomic<uint64_t>[ kRing ]() };
};

// Stamps `block` as used by launch `number` of `stream`. Lock-free; inside a gate slot or under a pin. `thread`:
// GateSlots::NumberOf the calling thread's slot; 0 when it has none.
void StampBlockAnew(const StreamClock& clock, Block* block, Stamp stamp, uint8_t thread);
inline void StampBlock(const StreamClock& clock, Block* block, Stamp stamp, uint8_t thread) {
  for (size_t i = 0; thread != 0 && i < Block::GateSide::kStamps; ++i) {
    const uint8_t owner = block->gate.stamp_owners[i].load(std::memory_order_relaxed);
    if (owner == 0) break;
    if (owner != thread) continue;
    const Stamp old = Stamp::Unpack(block->gate.stamps[i].load(std::memory_order_relaxed));
    if (old.stream != stamp.stream) continue;
    if (old.number < stamp.number) block->gate.stamps[i].store(stamp.Packed(), std::memory_order_relaxed);
    return;
  }
  StampBlockAnew(clock, block, stamp, thread);
}
// The same by the calling thread, whatever slot it has.
void StampBlock(const StreamClock& clock, Block* block, Stamp stamp);
// Launch `index` used the block.
inline void NoteUse(const StreamClock& clock, Block* block, Stamp stamp, uint8_t thread,
                    policy::LaunchIndex index) {
  StampBlock(clock, block, stamp, thread);
  block->gate.used.store(true, std::memory_order_relaxed);
  block->gate.last_use.store(index + 1, std::memory_order_relaxed);
}
// The stamps and recorded streams that the GPU has not completed yet. The gate must be closed and no thread inside.
std::vector<Stamp> UncompletedUses(const StreamClock& clock, Block* block);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_LAUNCH_LOG_H_
