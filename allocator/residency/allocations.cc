#include "allocator/residency/allocations.h"

#include <algorithm>
#include <string>
#include <utility>

#include "allocator/memory/test_points.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"

namespace spillway::allocator {

Allocations::Allocations(Core* core, Parts parts)
    : core_(core),
      charges_(parts.charges),
      addresses_(parts.addresses),
      clean_(parts.clean),
      log_(parts.log),
      soft_(parts.soft),
      wake_(std::move(parts.wake)) {}

// ---- Handing out.

absl::StatusOr<Block*> Allocations::Allocate(uint64_t bytes, CUstream stream, BlockRegion region) {
  SPILLWAY_RETURN_IF_ERROR(core_->Serving());
  if (bytes == 0) return absl::InvalidArgumentError("a block of 0 bytes");
  const uint64_t chunks = (bytes + core_->chunk_bytes - 1) / core_->chunk_bytes;
  if (chunks > UINT32_MAX)
    return absl::ResourceExhaustedError("a block larger than the device's address space");
  Block* block = nullptr;
  // The clock gets to know the stream before the block exists. When the block is freed, the clock then knows
  // whether the stream has been destroyed.
  const StreamIndex owner = core_->clock.Find({stream, false});
  {
    TableLock lock(core_->table);
    SPILLWAY_RETURN_IF_ERROR(charges_->Begin(&lock, chunks, [this] { return core_->Serving(); }));
    absl::StatusOr<Block*> taken = TakeBlockLocked(&lock, static_cast<uint32_t>(chunks), stream);
    if (!taken.ok()) {
      charges_->Cancel(lock, chunks);
      return taken.status();
    }
    block = *taken;
    block->allocation.requested_bytes = bytes;
    block->allocation.owner_index = owner;
    block->copies.content_known = false;
    block->pause.region = region;
    ++block->allocation.generation;
    charges_->Confirm(lock, block);
    if (block->copies.written_unseen)
      core_->table.AddPinLocked(lock, block, PinReason::kUnseenWrite, log_->count());
  }
  if (core_->parts.observer != nullptr) {
    core_->parts.observer->OnAllocate(core_->options.device, block->id, chunks * core_->chunk_bytes,
                                      Core::BytesOfCopy(*block));
  }
  return block;
}

absl::StatusOr<Block*> Allocations::TakeBlockLocked(TableLock* lock, uint32_t chunks, CUstream stream) {
  Block* block = addresses_->Take(*lock, chunks, stream);
  AllocationPath path = AllocationPath::kNewAddress;
  if (block != nullptr) {
    // The wait is short: the address is still in use by a decommit past its commit point, or by the transfer
    // of a freed block.
    block->allocation.wanted = true;
    const absl::Status status = AwaitEndOfTransferLocked(lock, block);
    block->allocation.wanted = false;
    if (!status.ok()) {
      if (!block->allocation.freed) addresses_->List(*lock, block);
      return status;
    }
    path = block->state == BlockState::kCached ? AllocationPath::kCachedSameStream
                                               : AllocationPath::kKeptAddress;
  } else {
    SPILLWAY_ASSIGN_OR_RETURN(block, addresses_->Create(*lock, chunks, stream));
  }
  // Both are set before the block is live, because the choice of victims reads them.
  block->gate.used.store(false, std::memory_order_relaxed);
  block->allocation.handed_out_at = log_->count();
  core_->table.MoveLocked(
      *lock, block, path == AllocationPath::kCachedSameStream ? BlockState::kResident : BlockState::kEmpty);
  addresses_->RecordHandedOut(*lock);
  SPILLWAY_COUNT(kHandedOut, static_cast<int>(path));
  return block;
}

absl::Status Allocations::AwaitEndOfTransferLocked(TableLock* lock, Block* block) {
  const auto under_way = [&] {
    lock->Covers(core_->table);
    return block->allocation.freed ||
           (block->eviction.job != nullptr && !core_->table.CancelEvictionLocked(*lock, block));
  };
  if (!under_way()) return absl::OkStatus();
  const os::Wait wait(core_->waits, os::WaitKind::kEndOfTransfer,
                      "an allocation, for the address it is to get");
  while (under_way()) SPILLWAY_RETURN_IF_ERROR(core_->AwaitChangeLocked(lock, wait));
  return absl::OkStatus();
}

absl::StatusOr<BlockRange> Allocations::FindRange(CUdeviceptr address) const {
  const TableLock lock(core_->table);
  const Block* const block = core_->table.FindLocked(lock, address);
  if (block == nullptr) return absl::NotFoundError("no block of Spillway's is at this address");
  if (!block->live()) return absl::NotFoundError("the block at this address has been freed");
  return BlockRange{block->address, block->allocation.requested_bytes};
}

std::vector<LargeBlock> Allocations::Largest(size_t most) const {
  std::vector<LargeBlock> largest;
  {
    const TableLock lock(core_->table);
    core_->table.ForEachLiveLocked(lock, [&](const Block* block) {
      LargeBlock entry{block->allocation.requested_bytes, block->has_chunks(), std::nullopt, block->id};
      if (block->used_since_hand_out()) {
        const uint64_t used = block->gate.last_use.load(std::memory_order_relaxed);
        if (used > 0) entry.last_launch = used - 1;
      }
      largest.push_back(entry);
    });
  }
  const size_t kept = std::min(most, largest.size());
  std::partial_sort(largest.begin(), largest.begin() + static_cast<std::ptrdiff_t>(kept), largest.end(),
                    [](const auto& a, const auto& b) { return a.requested_bytes > b.requested_bytes; });
  largest.resize(kept);
  return largest;
}

std::vector<BlockBytes> Allocations::Pinned() const {
  std::vector<BlockBytes> pinned;
  const TableLock lock(core_->table);
  core_->table.ForEachLiveLocked(lock, [&](const Block* block) {
    if (block->pin_reasons != 0) pinned.push_back({block->id, block->chunks * core_->chunk_bytes});
  });
  return pinned;
}

// ---- Taking back.

absl::Status Allocations::Free(CUdeviceptr address) {
  const BlockId id = core_->parts.addresses->Find(address);
  if (!id.valid()) return absl::InvalidArgumentError("free of an address that is no block of Spillway's");
  {
    const TableLock lock(core_->table);
    Block* const block = &core_->table.at(id);
    if (block->address != address || !block->live()) {
      return absl::InvalidArgumentError("free of an address that is not the start of a live block");
    }
    addresses_->RecordTakenBack(lock, block);
    if (!core_->closed.load()) RecordQueuedWorkLocked(lock, block);
    core_->table.ForgetPinsLocked(lock, block);
    FreeLocked(lock, block);
    charges_->End(lock, block);
  }
  if (core_->parts.observer != nullptr) core_->parts.observer->OnFree(core_->options.device, id);
  return absl::OkStatus();
}

// Kernels that reached the block without naming it have recorded no use. By PyTorch's rules they ran on the
// block's own stream or on recorded streams. Recorded streams may have been given more work since the record,
// so their timeline values are read anew.
void Allocations::RecordQueuedWorkLocked(const TableLock& lock, Block* block) {
  if (!SPILLWAY_MUTANT(kRecordedOnce)) {
    for (TimelineValue& value : block->allocation.recorded) value = core_->clock.QueuedOn(value.stream);
  }
  RecordQueuedWorkLocked(lock, block, block->allocation.owner_index);
}

void Allocations::FreeLocked(const TableLock& lock, Block* block) {
  if (block->eviction.job != nullptr && block->state != BlockState::kEvicting)
    core_->table.CancelEvictionLocked(lock, block);
  if (!SPILLWAY_MUTANT(kFreeKeepsCopy)) clean_->Drop(lock, block);
  switch (block->state) {
    case BlockState::kResident: core_->table.MoveLocked(lock, block, BlockState::kCached); break;
    case BlockState::kEmpty:
      if (block->memory.mapping) {  // the end of the mapping finishes the free
        addresses_->BeginFree(lock, block);
        return;
      }
      core_->table.MoveLocked(lock, block, BlockState::kFree);
      break;
    case BlockState::kSpilled:
      if (block->memory.mapping || (block->memory.soft && !SPILLWAY_MUTANT(kSoftFreedMapped))) {
        addresses_->BeginFree(lock, block);
        if (block->memory.soft) soft_->EndLocked(lock, block);
        return;
      }
      clean_->Release(lock, &block->copies.homes);
      core_->table.MoveLocked(lock, block, BlockState::kFree);
      core_->table.changed.NotifyAll();
      break;
    case BlockState::kEvicting:
      if (!block->eviction.job->committed) block->eviction.job->cancelled = true;
      addresses_->BeginFree(lock, block);
      wake_();
      return;
    case BlockState::kFaulting:
      Faulter::CancelLocked(lock, block);
      if (SPILLWAY_MUTANT(kReuseDrainingBlock)) {
        core_->table.MoveLocked(lock, block, BlockState::kCached);
        break;
      }
      addresses_->BeginFree(lock, block);
      wake_();
      return;
    case BlockState::kFree:
    case BlockState::kCached: SPILLWAY_CHECK(false);
  }
  addresses_->Offer(lock, block);
  if (addresses_->recorded_wait(lock)) wake_();
}

absl::Status Allocations::RecordStream(CUdeviceptr address, CUstream stream) {
  const BlockId id = core_->parts.addresses->Find(address);
  if (!id.valid())
    return absl::InvalidArgumentError("recordStream of an address that is no block of Spillway's");
  StreamRef named{stream, false};
  if (named.IsDefault()) {  // a default stream is another stream in every context
    SPILLWAY_RETURN_IF_ERROR(core_->parts.driver->ToStatus(
        core_->parts.driver->cuCtxGetCurrent(&named.context), "asking for the context of a default stream"));
  }
  const bool other_device = named.context != nullptr && named.context != core_->parts.context;
  const StreamIndex index = core_->clock.Find(named);
  if (index == kNoStream) return absl::ResourceExhaustedError("too many streams are alive");
  // The work queued on that stream now need not have come through the gate (a library's own work).
  const TimelineValue queued = core_->clock.QueuedOn(index);
  const TableLock lock(core_->table);
  Block* const block = core_->table.FindLocked(lock, address);
  if (block == nullptr || !block->live())
    return absl::InvalidArgumentError("recordStream of an address that is no block of Spillway's");
  if (block->allocation.owner == stream && !other_device) return absl::OkStatus();
  std::erase_if(block->allocation.recorded,
                [&](const TimelineValue& value) { return value.stream == index; });
  block->allocation.recorded.push_back(queued);
  // An eviction under way has already read the uses. It would copy or unmap the block while this stream uses
  // it.
  if (block->eviction.job != nullptr) core_->table.CancelEvictionLocked(lock, block);
  return absl::OkStatus();
}

// Work counts whether it came through the gate or not.
void Allocations::RecordQueuedWorkLocked(const TableLock& lock, Block* block, StreamIndex stream) {
  lock.Covers(core_->table);
  if (stream == kNoStream) {
    block->gate.many_streams.store(true);
  } else {
    RecordUse(core_->clock, block, core_->clock.QueuedOn(stream));
  }
}

bool Allocations::FinishFrees() {
  std::vector<TimelineValue> uncovered;
  bool progress = false;
  {
    const TableLock lock(core_->table);
    progress = addresses_->FinishRecorded(lock, [&](const TimelineValue& value) {
      if (core_->clock.Completed(value) || SPILLWAY_MUTANT(kReuseRecorded)) return true;
      uncovered.push_back(value);
      return false;
    });
    frees_wait_ = addresses_->recorded_wait(lock);
    if (progress) core_->table.changed.NotifyAll();
  }
  for (const TimelineValue& value : uncovered) core_->clock.Cover(value).IgnoreError();
  return progress;
}

}  // namespace spillway::allocator
