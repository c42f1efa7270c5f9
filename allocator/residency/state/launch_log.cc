#include "allocator/residency/state/launch_log.h"

#include "allocator/residency/state/read_side_sections.h"

namespace spillway::allocator {

bool LaunchLog::Completed(policy::LaunchIndex index) const {
  const policy::LaunchIndex launched = count_.load(std::memory_order_acquire);
  if (index >= launched) return false;
  if (launched - index >= kRing) return true;
  const Stamp stamp = StampOf(index);
  if (stamp.stream == kNoStream) return false;  // being written
  if (clock_->Completed(stamp)) return true;
  clock_->Cover(stamp).IgnoreError();  // asked again at the next step
  return false;
}

void StampBlock(const StreamClock& clock, Block* block, Stamp stamp) {
  StampBlock(clock, block, stamp, GateSlots::NumberOf(GateSlots::ForThisThread()));
}

// The thread has no stamp of this stream: over one of its own that is done with, else into one that is nobody's.
void StampBlockAnew(const StreamClock& clock, Block* block, Stamp stamp, uint8_t thread) {
  for (size_t i = 0; thread != 0 && i < Block::GateSide::kStamps; ++i) {
    uint8_t owner = block->gate.stamp_owners[i].load(std::memory_order_relaxed);
    if (owner == 0 && block->gate.stamp_owners[i].compare_exchange_strong(owner, thread)) owner = thread;
    if (owner != thread) continue;
    const Stamp old = Stamp::Unpack(block->gate.stamps[i].load(std::memory_order_relaxed));
    if (old.stream != kNoStream && !clock.Completed(old)) continue;
    block->gate.stamps[i].store(stamp.Packed(), std::memory_order_relaxed);
    return;
  }
  if (!SPILLWAY_MUTANT(kManyUsesForgotten)) block->gate.many_streams.store(true, std::memory_order_relaxed);
}

std::vector<Stamp> UncompletedUses(const StreamClock& clock, Block* block) {
  std::vector<Stamp> uses;
  // Not cleared here: if this eviction is taken back, the next one must wait for the same streams.
  if (block->gate.many_streams.load()) uses = clock.CurrentOfAll();
  for (const os::Atomic<uint64_t>& entry : block->gate.stamps) {
    const Stamp stamp = Stamp::Unpack(entry.load(std::memory_order_relaxed));
    if (stamp.stream != kNoStream && !clock.Completed(stamp)) uses.push_back(stamp);
  }
  for (const Stamp& stamp : block->allocation.recorded) {
    if (!clock.Completed(stamp) && !SPILLWAY_MUTANT(kForgetRecordedUse)) uses.push_back(stamp);
  }
  return uses;
}

}  // namespace spillway::allocator
