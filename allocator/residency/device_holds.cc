// Holds: blocks that must stay on the GPU because somebody may use them unseen, and uses that were not launches through
// the gate.

#include <string>
#include <vector>

#include "allocator/residency/device_residency.h"

namespace spillway::allocator {

absl::Status DeviceResidency::Hold(const AccessSet& set, HoldReason reason, std::vector<HeldBlock>* out) {
  if (core_->closed.load()) return absl::OkStatus();
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  Grant grant;
  absl::Status status = Prepare(set, nullptr, 0, &grant);  // it is not known which streams will use them
  if (status.ok()) {
    status = HoldPinned(grant, reason, out);
    thread_->claims()->Release(&grant);
  } else if (core_->closed.load()) {
    return absl::OkStatus();  // nothing leaves the GPU any more
  }
  return status.ok() ? status : NoteError(status);
}

absl::Status DeviceResidency::HoldPinned(const Grant& grant, HoldReason reason, std::vector<HeldBlock>* out) {
  os::MutexLock lock(&core_->table.mu);
  // One that another thread has freed since is left out: its next owner must not inherit the hold.
  std::vector<Block*> stay;
  for (Block* block : grant.pinned) {
    if (block->live()) stay.push_back(block);
  }
  for (Block* block : stay) core_->table.AddHoldLocked(block, reason, core_->launches.load());
  // Where nothing is evicted there is no room to keep; but what looks unused is stripped there, too.
  if (core_->evict.load() && !ChargeOfLocked(0).LaunchFits()) {
    for (Block* block : stay) core_->table.EndHoldLocked(block, reason);
    return absl::ResourceExhaustedError(
        "blocks that must stay on the GPU would leave no room for the largest launch");
  }
  for (Block* block : stay) {
    if (out != nullptr) out->push_back({block->id, block->generation});
  }
  return absl::OkStatus();
}

void DeviceResidency::EndHold(const std::vector<HeldBlock>& held, HoldReason reason,
                              const HiddenUsers& users) {
  if (core_->closed.load()) return;
  os::MutexLock lock(&core_->table.mu);
  for (const HeldBlock& entry : held) {
    Block* const block = &core_->table.at(entry.id);
    if (block->generation != entry.generation || !block->live()) continue;
    StampHiddenLocked(block, users);  // while the hold still keeps the evictor away
    core_->table.EndHoldLocked(block, reason);
  }
  thread_->Wake();
}

void DeviceResidency::NoteHiddenUse(const std::vector<HeldBlock>& held, const HiddenUsers& users) {
  if (core_->closed.load()) return;
  os::MutexLock lock(&core_->table.mu);
  for (const HeldBlock& entry : held) {
    Block* const block = &core_->table.at(entry.id);
    if (block->generation != entry.generation || !block->live()) continue;
    // Should the hold have ended meanwhile: an eviction that has read the uses already does not know this one.
    if (block->evict != nullptr) Evictor::CancelLocked(core_.get(), block);
    StampHiddenLocked(block, users);
  }
}

void DeviceResidency::StampHiddenLocked(Block* block, const HiddenUsers& users) {
  for (const StreamRef& stream : users.streams) StampQueuedWorkLocked(block, stream);
  if (users.carrier.valid() && users.carrier.device() == core_->options.device) {
    StampAsCarrierLocked(block, core_->table.at(users.carrier));
  }
}

// Whatever the stream has been given up to now, through the gate or not.
void DeviceResidency::StampQueuedWorkLocked(Block* block, StreamRef stream) {
  const StreamIndex index = core_->clock.Find(stream);
  if (index == kNoStream) {
    block->many_streams.store(true);
    return;
  }
  const allocator::Stamp stamp{index, core_->clock.Next(index, 0)};
  StampBlock(core_->clock, block, stamp);
  if (!core_->clock.IsPerThread(index)) return;
  ScopedContext scope(core_->parts.driver, core_->parts.context);  // nobody else can cover it
  core_->clock.Cover(stamp).IgnoreError();
}

void DeviceResidency::StampAsCarrierLocked(Block* block, const Block& carrier) {
  StampQueuedWorkLocked(block, {carrier.owner, false});
  if (carrier.many_streams.load()) block->many_streams.store(true);
  for (const os::Atomic<uint64_t>& entry : carrier.stamps) {
    const allocator::Stamp stamp = allocator::Stamp::Unpack(entry.load(std::memory_order_relaxed));
    if (stamp.stream != kNoStream) StampBlock(core_->clock, block, stamp);
  }
  for (const allocator::Stamp& stamp : carrier.recorded) StampBlock(core_->clock, block, stamp);
}

}  // namespace spillway::allocator
