// Allocation and frees: charging, addresses that are handed out again, frees in every state of a block, the cache.

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "allocator/residency/device_residency.h"
#include "allocator/residency/test_points.h"
#include "io/os/check.h"
#include "io/os/errno.h"

namespace spillway::allocator {

// ---- Charging: only what could be held on GPU, host and disk together is handed out.

Charge DeviceResidency::ChargeOfLocked(uint64_t more_chunks) const {
  Charge charge;
  charge.live = (core_->live_chunks + more_chunks) * core_->chunk_bytes;
  charge.largest_block =
      std::max<uint64_t>(core_->table.LargestLeaverLocked(), more_chunks) * core_->chunk_bytes;
  charge.largest_set = core_->table.launch_sets.largest_movable_bytes();
  charge.held = core_->table.held_chunks_locked() * core_->chunk_bytes;
  charge.chunk_target = core_->chunks.target() * core_->chunk_bytes;
  if (SPILLWAY_MUTANT(kNoExchangeRoom)) charge.largest_set = charge.largest_block = 0;
  return charge;
}

absl::Status DeviceResidency::ChargeLocked(uint64_t chunks, uint64_t* lacking_bytes) {
  *lacking_bytes = 0;
  // What fits the GPU together asks nothing of the tiers: no need to look at what could be launched.
  if (core_->live_chunks + chunks <= core_->chunks.target() && core_->promised_room_bytes == 0)
    return absl::OkStatus();
  const Charge charge = ChargeOfLocked(chunks);
  SpillRoom* const room = core_->room;
  if (charge.FitsGpu() || (core_->evict.load() && charge.LaunchFits())) {
    if (room->Change(core_->promised_room_bytes, charge.BeyondGpu())) {
      core_->promised_room_bytes = charge.BeyondGpu();
      return absl::OkStatus();
    }
    *lacking_bytes = charge.BeyondGpu() - core_->promised_room_bytes;
  }
  return RefusalOf(charge, room->promised_bytes() - core_->promised_room_bytes);
}

// Which term is short, by how much, and what would help.
absl::Status DeviceResidency::RefusalOf(const Charge& charge, uint64_t others_promised) const {
  const auto mib = [](uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  const std::string on_gpu = mib(charge.chunk_target) + " of GPU memory";
  if (!core_->evict.load()) {
    return absl::ResourceExhaustedError(
        mib(charge.live) + " of blocks would be live, nothing is moved off the GPU, and there are " + on_gpu +
        " for them. A larger SPILLWAY_GPU_MEMORY or smaller tensors make it fit");
  }
  if (!charge.LaunchFits()) {
    const bool block = charge.largest_block >= charge.largest_set;
    std::string text = block ? "a block of " + mib(charge.largest_block)
                             : "the blocks that one launch names, together " + mib(charge.largest_set) + ",";
    text += " cannot be on the GPU at once: there are " + on_gpu;
    if (charge.held > 0) text += ", of which " + mib(charge.held) + " hold blocks that must stay";
    return absl::ResourceExhaustedError(text +
                                        ". A larger SPILLWAY_GPU_MEMORY or smaller tensors make it fit");
  }
  const SpillRoom& room = *core_->room;
  const uint64_t needed = charge.live + charge.Headroom();
  const uint64_t there = charge.chunk_target + room.host_bytes() + room.disk_bytes();
  std::string text =
      "room off the GPU is short by " +
      mib(std::max<uint64_t>(needed + others_promised, there + (1 << 20)) - there) + ": " + mib(charge.live) +
      " of blocks would be live, and " + mib(charge.Headroom()) +
      " must stay free to exchange them (the largest launch and the largest block); there are " + on_gpu +
      ", " + mib(room.host_bytes()) + " of host memory and " + mib(room.disk_bytes()) + " on disk";
  if (others_promised > 0) text += ", of which " + mib(others_promised) + " are for blocks of other GPUs";
  return absl::ResourceExhaustedError(
      text + ". A larger SPILLWAY_HOST_MEMORY or more room in SPILLWAY_DIRS makes it fit");
}

// After blocks have gone: what they were promised off the GPU is others' again.
void DeviceResidency::LowerPromiseLocked() {
  if (core_->promised_room_bytes == 0) return;
  const uint64_t beyond = ChargeOfLocked(0).BeyondGpu();
  if (beyond >= core_->promised_room_bytes) return;
  core_->room->Change(core_->promised_room_bytes, beyond);
  core_->promised_room_bytes = beyond;
}

// ---- Allocation.

absl::StatusOr<CUdeviceptr> DeviceResidency::Allocate(uint64_t bytes, StreamRef stream) {
  if (core_->closed.load()) return absl::FailedPreconditionError("Spillway has shut down");
  if (core_->error.any()) return core_->error.status(*core_->parts.driver);
  if (bytes == 0) return absl::InvalidArgumentError("a block of 0 bytes");
  const uint64_t chunks = (bytes + core_->chunk_bytes - 1) / core_->chunk_bytes;
  if (chunks > UINT32_MAX)
    return absl::ResourceExhaustedError("a block larger than the device's address space");
  Block* block = nullptr;
  {
    os::MutexLock lock(&core_->table.mu);
    SPILLWAY_RETURN_IF_ERROR(ChargeAndGrowLocked(chunks));
    // Charged before the lock may be let go of: others must not be promised the same room.
    core_->live_chunks += chunks;
    core_->promised_chunks += chunks;
    absl::Status status;
    block = TakeBlockLocked(static_cast<uint32_t>(chunks), stream.handle, &status);
    core_->promised_chunks -= chunks;
    if (block == nullptr) {
      core_->live_chunks -= chunks;
      LowerPromiseLocked();
      return status;
    }
    ++core_->live_blocks;
    core_->live_requested_bytes += bytes;
    if (core_->live_chunks > core_->peak_live_chunks) {
      core_->peak_live_chunks = core_->live_chunks;
      core_->peak_requested_bytes = core_->live_requested_bytes;
    }
    block->requested_bytes = bytes;
    block->content_known = false;
    ++block->generation;
    core_->table.NoteHandedOutLocked(block);
  }
  if (core_->parts.observer != nullptr) {
    core_->parts.observer->OnAllocate(core_->options.device, block->id, chunks * core_->chunk_bytes);
  }
  if (core_->map_at_once.load()) SPILLWAY_RETURN_IF_ERROR(MapNow(block, stream));
  return block->address;
}

absl::Status DeviceResidency::ChargeAndGrowLocked(uint64_t chunks) {
  // Another device may take what has grown for this one; not for ever.
  constexpr int kMostGrowths = 100;
  uint64_t lacking = 0;
  for (int growths = 0;; ++growths) {
    absl::Status status = ChargeLocked(chunks, &lacking);
    if (status.ok() || lacking == 0 || !core_->room->CanGrow() || growths == kMostGrowths) return status;
    // The tiers may grow: that takes the file system's and the driver's time, so nobody waits for it with the lock.
    core_->table.mu.Unlock();
    const absl::Status grown = core_->room->Grow(lacking);
    core_->table.mu.Lock();
    if (core_->closed.load()) return absl::FailedPreconditionError("Spillway has shut down");
    if (core_->error.any()) return core_->error.status(*core_->parts.driver);
    if (absl::IsDeadlineExceeded(grown)) return grown;
    if (!grown.ok()) {
      // Somebody may have freed a block meanwhile.
      status = ChargeLocked(chunks, &lacking);
      if (status.ok()) return status;
      return WithWords(status, std::string(status.message()) + " (" + std::string(grown.message()) + ")");
    }
  }
}

absl::Status DeviceResidency::MapNow(Block* block, StreamRef stream) {
  const CUdeviceptr address = block->address;
  AccessSet set;
  set.Add(block->id);
  if (DeviceResidency::RunPinned(set, stream, 0, [] { return CUDA_SUCCESS; }) == CUDA_SUCCESS)
    return absl::OkStatus();
  absl::Status status = absl::ResourceExhaustedError(LastError());
  SPILLWAY_RETURN_IF_ERROR(Free(address));
  return status;
}

Block* DeviceResidency::TakeBlockLocked(uint32_t chunks, CUstream stream, absl::Status* status) {
  if (std::optional<BlockId> id = core_->addresses.Take(stream, chunks)) {
    Block* const block = &core_->table.at(*id);
    block->listed = false;
    // A strip that has passed its commit point, or the transfer of a freed block, ends in a moment.
    block->wanted = true;
    *status = AwaitEndOfTransferLocked(block);
    block->wanted = false;
    if (!status->ok()) {
      if (!block->freed) core_->ListLocked(block);
      return nullptr;
    }
    // Before it is live: who chooses victims goes by them.
    block->used.store(false, std::memory_order_relaxed);
    block->handed_out_at = core_->launches.load();
    if (block->state == BlockState::kCached) {
      core_->table.MoveLocked(block, BlockState::kResident);
      ++core_->allocation_paths[static_cast<int>(AllocationPath::kCachedSameStream)];
    } else {
      core_->table.MoveLocked(block, BlockState::kEmpty);
      ++core_->allocation_paths[static_cast<int>(AllocationPath::kKeptAddress)];
    }
    return block;
  }
  absl::StatusOr<uint64_t> address = core_->space.Allocate(chunks);
  if (!address.ok()) {
    // Kept addresses are a convenience: give those without chunks back, and try again.
    core_->table.ForEachLocked(BlockState::kFree, [&](Block* kept) {
      core_->table.mu.AssertHeld();
      core_->GiveUpAddressLocked(kept);
    });
    address = core_->space.Allocate(chunks);
  }
  if (!address.ok()) {
    *status = address.status();
    return nullptr;
  }
  Block* const block = core_->table.CreateLocked(*address, chunks);
  block->owner = stream;
  block->used.store(false, std::memory_order_relaxed);
  block->handed_out_at = core_->launches.load();
  core_->table.MoveLocked(block, BlockState::kEmpty);
  ++core_->allocation_paths[static_cast<int>(AllocationPath::kNewAddress)];
  return block;
}

absl::Status DeviceResidency::AwaitEndOfTransferLocked(Block* block) {
  const auto under_way = [&] {
    core_->table.mu.AssertHeld();
    return block->freed || (block->evict != nullptr && !Evictor::CancelLocked(core_.get(), block));
  };
  if (!under_way()) return absl::OkStatus();
  const os::Wait wait(core_->waits, os::WaitKind::kEndOfTransfer,
                      "an allocation, for the address it is to get");
  while (under_way()) SPILLWAY_RETURN_IF_ERROR(core_->AwaitChangeLocked(wait));
  return absl::OkStatus();
}

absl::Status DeviceResidency::Free(CUdeviceptr address) {
  if (core_->closed.load()) return absl::OkStatus();
  BlockId id = core_->parts.addresses->Find(address);
  if (!id.valid()) return absl::InvalidArgumentError("free of an address that is no block of Spillway's");
  {
    os::MutexLock lock(&core_->table.mu);
    Block* const block = &core_->table.at(id);
    if (block->address != address || !block->live()) {
      return absl::InvalidArgumentError("free of an address that is not the start of a live block");
    }
    --core_->live_blocks;
    core_->live_chunks -= block->chunks;
    core_->live_requested_bytes -= block->requested_bytes;
    block->freed_at = ++core_->frees;
    // Kernels that reached it without naming it left no stamp; by PyTorch's rules they ran on its own stream or on
    // recorded ones.
    if (block->held_reasons != 0) StampQueuedWorkLocked(block, {block->owner, false});
    core_->table.ForgetHoldsLocked(block);
    FreeLocked(block);
    core_->table.NoteFreedLocked(block);
    LowerPromiseLocked();
  }
  if (core_->parts.observer != nullptr) core_->parts.observer->OnFree(core_->options.device, id);
  return absl::OkStatus();
}

void DeviceResidency::FreeLocked(Block* block) {
  if (block->evict != nullptr && block->state != BlockState::kEvicting)
    Evictor::CancelLocked(core_.get(), block);
  if (!SPILLWAY_MUTANT(kFreeKeepsCopy)) core_->clean.Drop(block);
  switch (block->state) {
    case BlockState::kResident: core_->table.MoveLocked(block, BlockState::kCached); break;
    case BlockState::kEmpty:
      if (block->mapping) {  // whoever maps or unmaps it finishes the free
        core_->BeginFreeLocked(block);
        return;
      }
      core_->table.MoveLocked(block, BlockState::kFree);
      break;
    case BlockState::kSpilled:
      if (block->mapping) {
        core_->BeginFreeLocked(block);
        return;
      }
      core_->clean.Release(&block->homes);
      core_->table.MoveLocked(block, BlockState::kFree);
      core_->table.changed.NotifyAll();
      break;
    case BlockState::kEvicting:
      if (!block->evict->committed) block->evict->cancelled = true;
      core_->BeginFreeLocked(block);
      thread_->Wake();
      return;
    case BlockState::kFaulting:
      Faulter::CancelLocked(block);
      if (SPILLWAY_MUTANT(kReuseDrainingBlock)) {
        core_->table.MoveLocked(block, BlockState::kCached);
        break;
      }
      core_->BeginFreeLocked(block);
      thread_->Wake();
      return;
    case BlockState::kLost: core_->table.MoveLocked(block, BlockState::kFree); break;
    case BlockState::kFree:
    case BlockState::kCached: SPILLWAY_CHECK(false);
  }
  core_->OfferLocked(block);
  if (!core_->waiting_frees.empty()) thread_->Wake();
}

absl::Status DeviceResidency::RecordStream(CUdeviceptr address, CUstream stream) {
  const BlockId id = core_->parts.addresses->Find(address);
  if (!id.valid())
    return absl::InvalidArgumentError("recordStream of an address that is no block of Spillway's");
  StreamRef named{stream, false};
  if (named.IsDefault()) core_->parts.driver->cuCtxGetCurrent(&named.context);
  const bool foreign = named.context != nullptr && named.context != core_->parts.context;
  const StreamIndex index = core_->clock.Find(named);
  if (index == kNoStream) return absl::ResourceExhaustedError("too many streams are alive");
  // What is queued on that stream now need not have come through the gate (a library's own work): number it.
  const uint64_t number = core_->clock.Next(index, 0);
  // Nobody else can cover it, and this thread may not come back.
  if (core_->clock.IsPerThread(index)) core_->clock.Cover({index, number}).IgnoreError();
  os::MutexLock lock(&core_->table.mu);
  Block* const block = core_->table.FindLocked(address);
  if (block == nullptr || !block->live())
    return absl::InvalidArgumentError("recordStream of an address that is no block of Spillway's");
  if (block->owner == stream && !foreign) return absl::OkStatus();
  std::erase_if(block->recorded, [&](const allocator::Stamp& stamp) { return stamp.stream == index; });
  block->recorded.push_back({index, number});
  // An eviction has read the uses already, and would copy or unmap under this one.
  if (block->evict != nullptr) Evictor::CancelLocked(core_.get(), block);
  return absl::OkStatus();
}

absl::StatusOr<Residency::Range> DeviceResidency::FindRange(CUdeviceptr address) const {
  os::MutexLock lock(&core_->table.mu);
  const Block* const block = core_->table.FindLocked(address);
  if (block == nullptr) return absl::NotFoundError("no block of Spillway's holds this address");
  if (!block->live()) return absl::NotFoundError("the block that held this address has been freed");
  return Range{block->address, block->requested_bytes};
}

absl::Status DeviceResidency::EmptyCache() {
  StripCache(UINT64_MAX).IgnoreError();  // what could be taken is given back below
  std::vector<ChunkHandle> chunks;
  {
    os::MutexLock lock(&core_->table.mu);
    core_->table.launch_sets.ForgetDead();
    LowerPromiseLocked();
    core_->chunks.BeginRelease(core_->chunks.free(), &chunks);
  }
  absl::Status status;
  for (const ChunkHandle chunk : chunks) status.Update(ReleaseChunk(core_->parts.driver, chunk));
  core_->error.Note(status);
  return core_->error.any() ? core_->error.status(*core_->parts.driver) : status;
}

absl::Status DeviceResidency::StripCache(uint64_t chunks) {
  os::MutexLock lock(&core_->table.mu);
  if (core_->stopped.load()) return core_->StopStatus();
  std::vector<Block*> victims;
  uint64_t taken = 0;
  core_->table.ForEachLocked(BlockState::kCached, [&](Block* block) {
    if (taken >= chunks || !block->listed || block->evict != nullptr) return;
    if (block->pins > 0 || block->mapping || block->freed) return;
    victims.push_back(block);
    taken += block->chunks;
  });
  if (victims.empty()) return absl::OkStatus();
  thread_->RequestStripsLocked(victims);
  const auto under_way = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::any_of(victims.begin(), victims.end(),
                       [](Block* block) { return block->evict != nullptr && !block->evict->cancelled; });
  };
  const os::Wait wait(core_->waits, os::WaitKind::kCacheRelease,
                      std::to_string(victims.size()) + " cached blocks");
  while (under_way()) SPILLWAY_RETURN_IF_ERROR(core_->AwaitChangeLocked(wait));
  return absl::OkStatus();
}

}  // namespace spillway::allocator
