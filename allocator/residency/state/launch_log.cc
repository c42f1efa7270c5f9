#include "allocator/residency/state/launch_log.h"

#include "allocator/residency/state/read_side_sections.h"

namespace spillway::allocator {

bool LaunchLog::Completed(policy::LaunchIndex index) const {
  const policy::LaunchIndex launched = count_.load(std::memory_order_acquire);
  if (index >= launched) return false;
  if (launched - index >= kRing) return true;
  const TimelineValue value = ValueOf(index);
  if (value.stream == kNoStream) return false;  // is being written
  if (clock_->Completed(value)) return true;
  clock_->Cover(value).IgnoreError();  // tried again at the next poll
  return false;
}

void RecordUse(const StreamClock& clock, Block* block, TimelineValue value) {
  RecordUse(clock, block, value, ReadSections::NumberOf(ReadSections::ForThisThread()));
}

// The thread has no entry of this stream. It takes over an entry of its own whose use is completed, or else
// one without an owner.
void RecordUseAnew(const StreamClock& clock, Block* block, TimelineValue value, uint8_t thread) {
  for (size_t i = 0; thread != 0 && i < Block::GateSide::kUses; ++i) {
    uint8_t owner = block->gate.use_owners[i].load(std::memory_order_relaxed);
    if (owner == 0 && block->gate.use_owners[i].compare_exchange_strong(owner, thread)) owner = thread;
    if (owner != thread) continue;
    const TimelineValue old = TimelineValue::Unpack(block->gate.uses[i].load(std::memory_order_relaxed));
    if (old.stream != kNoStream && !clock.Completed(old)) continue;
    block->gate.uses[i].store(value.Packed(), std::memory_order_relaxed);
    return;
  }
  if (!SPILLWAY_MUTANT(kManyUsesForgotten)) block->gate.many_streams.store(true, std::memory_order_relaxed);
}

std::vector<TimelineValue> UncompletedUses(const StreamClock& clock, Block* block) {
  std::vector<TimelineValue> uses;
  // The flag is not cleared here: if this eviction is taken back, the next one must wait for the same
  // streams.
  if (block->gate.many_streams.load()) uses = clock.CurrentOfAll();
  for (const os::Atomic<uint64_t>& entry : block->gate.uses) {
    const TimelineValue value = TimelineValue::Unpack(entry.load(std::memory_order_relaxed));
    if (value.stream != kNoStream && !clock.Completed(value)) uses.push_back(value);
  }
  for (const TimelineValue& value : block->allocation.recorded) {
    if (!clock.Completed(value) && !SPILLWAY_MUTANT(kForgetRecordedUse)) uses.push_back(value);
  }
  return uses;
}

}  // namespace spillway::allocator
