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

Charge DeviceResidency::ChargeOfLocked(uint64_t more_chunks) const {
  Charge charge;
  charge.live = (core_->live_chunks + more_chunks) * core_->chunk_bytes;
  charge.largest_block = std::max(core_->largest_block_bytes, more_chunks * core_->chunk_bytes);
  charge.largest_set = core_->largest_set_bytes.load();
  charge.chunk_target = core_->chunks.target() * core_->chunk_bytes;
  if (SPILLWAY_MUTANT(kNoExchangeRoom)) charge.largest_set = charge.largest_block = 0;
  return charge;
}

absl::Status DeviceResidency::ChargeLocked(uint64_t chunks) {
  const Charge charge = ChargeOfLocked(chunks);
  SpillRoom* const room = core_->room;
  const bool fits = charge.FitsGpu() || (core_->evict.load() && charge.CanExchange());
  if (fits && room->Change(core_->promised_room_bytes, charge.BeyondGpu())) {
    core_->promised_room_bytes = charge.BeyondGpu();
    return absl::OkStatus();
  }
  const auto mib = [](uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  const bool tiers = core_->evict.load();
  const uint64_t others = room->promised_bytes() - core_->promised_room_bytes;
  return absl::ResourceExhaustedError(
      mib(charge.live) + " of blocks would be live; there is room for " + mib(charge.chunk_target) +
      " on the GPU, " + mib(tiers ? room->host_bytes() : 0) + " in host memory and " +
      mib(tiers ? room->disk_bytes() : 0) + " on disk" +
      (others > 0 ? " (" + mib(others) + " of it for blocks of other GPUs)" : "") + ", of which " +
      mib(charge.ExchangeRoom()) + " must stay free to exchange blocks");
}

// After blocks have gone: what they were promised off the GPU is others' again.
void DeviceResidency::LowerPromiseLocked() {
  const uint64_t beyond = ChargeOfLocked(0).BeyondGpu();
  if (beyond >= core_->promised_room_bytes) return;
  core_->room->Change(core_->promised_room_bytes, beyond);
  core_->promised_room_bytes = beyond;
}

absl::StatusOr<CUdeviceptr> DeviceResidency::Allocate(uint64_t bytes, StreamRef stream) {
  if (core_->closed.load()) return absl::FailedPreconditionError("Spillway has shut down");
  if (bytes == 0) return absl::InvalidArgumentError("a block of 0 bytes");
  const uint64_t chunks = (bytes + core_->chunk_bytes - 1) / core_->chunk_bytes;
  if (chunks > UINT32_MAX)
    return absl::ResourceExhaustedError("a block larger than the device's address space");
  Block* block = nullptr;
  {
    os::MutexLock lock(&core_->table.mu);
    SPILLWAY_RETURN_IF_ERROR(ChargeLocked(chunks));
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
    core_->live_requested_bytes += bytes;
    if (core_->live_chunks > core_->peak_live_chunks) {
      core_->peak_live_chunks = core_->live_chunks;
      core_->peak_requested_bytes = core_->live_requested_bytes;
    }
    core_->largest_block_bytes = std::max(core_->largest_block_bytes, chunks * core_->chunk_bytes);
    block->requested_bytes = bytes;
    block->handed_out_at = core_->launches.load();
    block->used.store(false, std::memory_order_relaxed);
    block->content_known = false;
    ++block->generation;
  }
  if (core_->parts.observer != nullptr) {
    core_->parts.observer->OnAllocate(core_->options.device, block->id, chunks * core_->chunk_bytes);
  }
  if (core_->map_at_once.load()) SPILLWAY_RETURN_IF_ERROR(MapNow(block, stream));
  return block->address;
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
    while (block->freed || (block->evict != nullptr && !Evictor::CancelLocked(core_.get(), block))) {
      if (core_->closed.load()) {
        *status = absl::CancelledError("Spillway has shut down");
        return nullptr;
      }
      core_->table.changed.WaitFor(&core_->table.mu, std::chrono::milliseconds(100));
    }
    block->wanted = false;
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
    for (BlockId id : core_->addresses.TakeAll()) {
      Block* const kept = &core_->table.at(id);
      if (kept->state != BlockState::kFree || kept->evict != nullptr || kept->mapping || kept->pins > 0) {
        core_->addresses.Add(kept->owner, kept->chunks, kept->address, id);
        continue;
      }
      kept->listed = false;
      core_->space.Free(kept->address, kept->chunks);
      core_->table.DestroyLocked(kept);
    }
    address = core_->space.Allocate(chunks);
  }
  if (!address.ok()) {
    *status = address.status();
    return nullptr;
  }
  Block* const block = core_->table.CreateLocked(*address, chunks);
  block->owner = stream;
  core_->table.MoveLocked(block, BlockState::kEmpty);
  ++core_->allocation_paths[static_cast<int>(AllocationPath::kNewAddress)];
  return block;
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
    core_->live_chunks -= block->chunks;
    core_->live_requested_bytes -= block->requested_bytes;
    LowerPromiseLocked();
    block->freed_at = ++core_->frees;
    // Kernels that reached it without naming it left no stamp; by PyTorch's rules they ran on its own stream or on
    // recorded ones.
    if (block->held_reasons != 0) StampQueuedWorkLocked(block, {block->owner, false});
    core_->table.ForgetHoldsLocked(block);
    FreeLocked(block);
  }
  if (core_->parts.observer != nullptr) core_->parts.observer->OnFree(core_->options.device, id);
  return absl::OkStatus();
}

void DeviceResidency::FreeLocked(Block* block) {
  if (block->evict != nullptr && block->state != BlockState::kEvicting)
    Evictor::CancelLocked(core_.get(), block);
  core_->clean.Drop(block);
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
  Block* const block = &core_->table.at(id);
  if (block->owner == stream && !foreign) return absl::OkStatus();
  std::erase_if(block->recorded, [&](const allocator::Stamp& stamp) { return stamp.stream == index; });
  block->recorded.push_back({index, number});
  // An eviction has read the uses already, and would copy or unmap under this one.
  if (block->evict != nullptr) Evictor::CancelLocked(core_.get(), block);
  return absl::OkStatus();
}

absl::StatusOr<Residency::Range> DeviceResidency::FindRange(CUdeviceptr address) const {
  const BlockId id = core_->parts.addresses->Find(address);
  if (!id.valid()) return absl::NotFoundError("no block of Spillway's holds this address");
  os::MutexLock lock(&core_->table.mu);
  const Block& block = core_->table.at(id);
  if (!block.live()) return absl::NotFoundError("the block that held this address has been freed");
  return Range{block.address, block.requested_bytes};
}

absl::Status DeviceResidency::EmptyCache() {
  StripCache(UINT64_MAX);
  std::vector<ChunkHandle> chunks;
  {
    os::MutexLock lock(&core_->table.mu);
    core_->chunks.BeginRelease(core_->chunks.free(), &chunks);
  }
  absl::Status status;
  for (const ChunkHandle chunk : chunks) status.Update(ReleaseChunk(core_->parts.driver, chunk));
  return status;
}

uint64_t DeviceResidency::StripCache(uint64_t chunks) {
  os::MutexLock lock(&core_->table.mu);
  std::vector<Block*> victims;
  uint64_t taken = 0;
  core_->table.ForEachLocked([&](Block* block) {
    if (taken >= chunks || block->state != BlockState::kCached || !block->listed || block->evict != nullptr)
      return;
    if (block->pins > 0 || block->mapping || block->freed) return;
    victims.push_back(block);
    taken += block->chunks;
  });
  if (victims.empty()) return 0;
  thread_->RequestStripsLocked(victims);
  const auto under_way = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::any_of(victims.begin(), victims.end(),
                       [](Block* block) { return block->evict != nullptr && !block->evict->cancelled; });
  };
  while (under_way() && !core_->closed.load()) {
    core_->table.changed.WaitFor(&core_->table.mu, std::chrono::milliseconds(100));
  }
  return taken;
}

}  // namespace spillway::allocator
