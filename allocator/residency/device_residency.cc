#include "allocator/residency/device_residency.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "allocator/residency/test_points.h"
#include "io/os/check.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {

#ifdef SPILLWAY_TEST_HOOKS
std::atomic<Mutant> active_mutant{Mutant::kNone};
std::atomic<void (*)(const char*)> delay_function{nullptr};
#endif

const char* NameOf(HoldReason reason) {
  static constexpr const char* kNames[] = {"unknown_call", "export", "peer", "texture",
                                           "graph",        "pointer_table", "module_global", "denied"};
  return kNames[static_cast<int>(reason)];
}

namespace {

// Room for an allocation of others: how long it may wait in all, and without any chunk having been given up.
constexpr int64_t kLongestWaitForOthers = 1'000'000'000;
constexpr int64_t kWaitWithoutProgress = 100'000'000;

ResidencyOptions WithDefaults(ResidencyOptions options) {
  if (options.others_share_bytes == 0) options.others_share_bytes = DefaultOthersShare(options.budget_bytes);
  if (options.free_reserve_bytes == 0) options.free_reserve_bytes = options.budget_bytes / 16;
  if (options.run_ahead_bytes == 0) options.run_ahead_bytes = options.budget_bytes / 4;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Residency>> Residency::Create(const ResidencyOptions& options,
                                                             const ResidencyParts& parts) {
  auto residency = std::make_unique<DeviceResidency>(options, parts);
  SPILLWAY_RETURN_IF_ERROR(residency->Start());
  return std::unique_ptr<Residency>(std::move(residency));
}

DeviceResidency::DeviceResidency(const ResidencyOptions& options, const ResidencyParts& parts)
    : core_(std::make_unique<Core>(WithDefaults(options), parts)) {}

DeviceResidency::~DeviceResidency() { Shutdown(); }

absl::Status DeviceResidency::Start() {
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  SPILLWAY_ASSIGN_OR_RETURN(copies_, CopyStreams::Create(core_->parts.driver, &core_->clock));
  thread_ = std::make_unique<DeviceThread>(core_.get(), copies_.get());
  {
    os::MutexLock lock(&core_->table.mu);
    core_->budget = {core_->options.budget_bytes, core_->options.others_share_bytes, 0, 0};
    core_->RestoreTargetLocked();
  }
  thread_->Start();
  return absl::OkStatus();
}

// ---- Allocation.

absl::Status DeviceResidency::ChargeLocked(uint64_t chunks) {
  Charge charge;
  charge.live = (core_->live_chunks + chunks) * core_->chunk_bytes;
  charge.largest_block = std::max(core_->largest_block_bytes, chunks * core_->chunk_bytes);
  charge.largest_set = core_->largest_set_bytes.load();
  charge.chunk_target = core_->chunks.target() * core_->chunk_bytes;
  if (core_->evict.load()) {
    if (core_->parts.host != nullptr) charge.host_room = core_->parts.host->storage_capacity();
    charge.disk_room = core_->parts.disk != nullptr ? core_->parts.disk_bytes : 0;
  }
  if (SPILLWAY_MUTANT(kNoExchangeRoom)) charge.largest_set = charge.largest_block = 0;
  if (charge.Fits()) return absl::OkStatus();
  const auto mib = [](uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  return absl::ResourceExhaustedError(
      "Spillway: " + mib(charge.live) + " of blocks would be live; there is room for " + mib(charge.chunk_target) +
      " on the GPU, " + mib(charge.host_room) + " in host memory and " + mib(charge.disk_room) + " on disk, of which " +
      mib(charge.ExchangeRoom()) + " must stay free to exchange blocks");
}

absl::StatusOr<CUdeviceptr> DeviceResidency::Allocate(uint64_t bytes, StreamRef stream) {
  if (core_->closed.load()) return absl::FailedPreconditionError("Spillway has shut down");
  if (bytes == 0) return absl::InvalidArgumentError("a block of 0 bytes");
  const uint64_t chunks = (bytes + core_->chunk_bytes - 1) / core_->chunk_bytes;
  if (chunks > UINT32_MAX) return absl::ResourceExhaustedError("a block larger than the device's address space");
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
      return status;
    }
    core_->live_requested_bytes += bytes;
    core_->largest_block_bytes = std::max(core_->largest_block_bytes, chunks * core_->chunk_bytes);
    block->requested_bytes = bytes;
    block->handed_out_at = core_->launches.load();
    ++block->generation;
  }
  if (core_->parts.observer != nullptr) {
    core_->parts.observer->OnAllocate(core_->options.device, block->id, chunks * core_->chunk_bytes);
  }
  return block->address;
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
    block->freed_at = ++core_->frees;
    block->held_reasons = 0;
    FreeLocked(block);
  }
  if (core_->parts.observer != nullptr) core_->parts.observer->OnFree(core_->options.device, id);
  return absl::OkStatus();
}

void DeviceResidency::FreeLocked(Block* block) {
  if (block->evict != nullptr && block->state != BlockState::kEvicting) Evictor::CancelLocked(core_.get(), block);
  switch (block->state) {
    case BlockState::kResident:
      core_->table.MoveLocked(block, BlockState::kCached);
      break;
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
      for (const ChunkHome& home : block->homes) {
        if (home.on_disk) {
          core_->parts.disk->ReleaseSlot(home.slot);
        } else {
          core_->parts.host->Give(HostUse::kStorage, home.piece);
        }
      }
      block->homes.clear();
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
    case BlockState::kLost:
      core_->table.MoveLocked(block, BlockState::kFree);
      break;
    case BlockState::kFree:
    case BlockState::kCached:
      SPILLWAY_CHECK(false);
  }
  core_->OfferLocked(block);
  if (!core_->waiting_frees.empty()) thread_->Wake();
}

absl::Status DeviceResidency::RecordStream(CUdeviceptr address, CUstream stream) {
  const BlockId id = core_->parts.addresses->Find(address);
  if (!id.valid()) return absl::InvalidArgumentError("recordStream of an address that is no block of Spillway's");
  const StreamIndex index = core_->clock.Find({stream, false});
  if (index == kNoStream) return absl::ResourceExhaustedError("too many streams are alive");
  // What is queued on that stream now need not have come through the gate (a library's own work): number it.
  const uint64_t number = core_->clock.Next(index, 0);
  if (core_->clock.IsPerThread(index)) {  // nobody else can cover it, and this thread may not come back
    ScopedContext scope(core_->parts.driver, core_->parts.context);
    core_->clock.Cover({index, number}).IgnoreError();
  }
  os::MutexLock lock(&core_->table.mu);
  Block* const block = &core_->table.at(id);
  if (block->owner == stream) return absl::OkStatus();
  std::erase_if(block->recorded, [&](const allocator::Stamp& stamp) { return stamp.stream == index; });
  block->recorded.push_back({index, number});
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
    if (taken >= chunks || block->state != BlockState::kCached || !block->listed || block->evict != nullptr) return;
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

// ---- Streams, capture, foreign memory.

void DeviceResidency::OnStreamDestroy(CUstream stream) {
  if (core_->closed.load()) return;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  core_->clock.OnDestroy(stream);
}

void DeviceResidency::OnCaptureBegin(CUstream stream) {
  if (core_->closed.load()) return;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  const StreamIndex index = core_->clock.Find({stream, false});
  if (index != kNoStream) core_->clock.Cover({index, core_->clock.Current(index)}).IgnoreError();
  captures_.fetch_add(1);
}

void DeviceResidency::OnCaptureEnd(CUstream stream) {
  if (captures_.load() > 0) captures_.fetch_sub(1);
}

void DeviceResidency::OnForeignBytes(int64_t delta) {
  if (core_->closed.load()) return;
  {
    os::MutexLock lock(&core_->table.mu);
    uint64_t& others = core_->budget.others;
    others = delta < 0 && others < static_cast<uint64_t>(-delta) ? 0 : others + delta;
    core_->RestoreTargetLocked();
    core_->NotePeakLocked();
  }
  thread_->Wake();
}

void DeviceResidency::BeginForeignAllocation(uint64_t bytes) {
  if (core_->closed.load()) return;
  const int64_t start = os::Clock::System()->NowNanos();
  int64_t last_progress = start;
  uint64_t held = UINT64_MAX;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  {
    os::MutexLock lock(&core_->table.mu);
    core_->budget.coming += bytes;
    core_->RestoreTargetLocked();
  }
  for (;;) {
    std::vector<ChunkHandle> chunks;
    {
      os::MutexLock lock(&core_->table.mu);
      core_->chunks.BeginRelease(core_->chunks.excess(), &chunks);
    }
    for (const ChunkHandle chunk : chunks) ReleaseChunk(core_->parts.driver, chunk).IgnoreError();
    const int64_t now = os::Clock::System()->NowNanos();
    os::MutexLock lock(&core_->table.mu);
    if (core_->chunks.excess() == 0 || core_->closed.load()) return;
    if (core_->chunks.held() != held) last_progress = now;
    held = core_->chunks.held();
    if (now - start > kLongestWaitForOthers || now - last_progress > kWaitWithoutProgress) return;
    thread_->Wake();
    core_->table.changed.WaitFor(&core_->table.mu, std::chrono::milliseconds(10));
  }
}

void DeviceResidency::EndForeignAllocation(uint64_t bytes, bool failed) {
  os::MutexLock lock(&core_->table.mu);
  core_->budget.coming -= std::min(core_->budget.coming, bytes);
  // After a success the target stays until OnForeignBytes has counted the bytes.
  if (failed) core_->RestoreTargetLocked();
}

void DeviceResidency::StopEvicting() { core_->evict.store(false); }

bool DeviceResidency::ReleaseForOthers(uint64_t bytes_wanted) {
  if (core_->closed.load()) return false;
  const uint64_t wanted = std::max<uint64_t>(bytes_wanted, 32 << 20) / core_->chunk_bytes + 1;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  uint64_t released = 0;
  for (int round = 0; round < 2 && released < wanted; ++round) {
    std::vector<ChunkHandle> chunks;
    {
      os::MutexLock lock(&core_->table.mu);
      core_->chunks.BeginRelease(std::min(core_->chunks.free(), wanted - released), &chunks);
    }
    for (const ChunkHandle chunk : chunks) ReleaseChunk(core_->parts.driver, chunk).IgnoreError();
    released += chunks.size();
    if (released < wanted && round == 0) StripCache(wanted - released);
  }
  return released > 0;
}

// ---- Reports and the end.

void DeviceResidency::SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) {
  thread_->plan_runner()->Set(std::move(plan));
  thread_->Wake();
}

ResidencyStats DeviceResidency::Stats() const {
  ResidencyStats stats;
  const Counters& counters = core_->counters;
  {
    os::MutexLock lock(&core_->table.mu);
    stats.budget_bytes = core_->options.budget_bytes;
    stats.chunk_target_bytes = core_->chunks.target() * core_->chunk_bytes;
    stats.live_bytes = core_->live_chunks * core_->chunk_bytes;
    stats.requested_bytes = core_->live_requested_bytes;
    stats.chunk_bytes = core_->chunks.held() * core_->chunk_bytes;
    stats.peak_chunk_bytes = core_->chunks.peak_held() * core_->chunk_bytes;
    stats.peak_device_bytes = core_->peak_device_bytes;
    stats.others_bytes = core_->budget.others;
    core_->table.ForEachLocked([&](Block* block) {
      const uint64_t bytes = block->chunks * core_->chunk_bytes;
      if (block->state == BlockState::kCached) stats.cached_bytes += bytes;
      if (block->live() && block->holds_chunks()) stats.resident_bytes += bytes;
      for (const ChunkHome& home : block->homes) {
        (home.on_disk ? stats.disk_tier_bytes : stats.host_tier_bytes) += core_->chunk_bytes;
      }
      if (block->held_reasons == 0) return;
      stats.held_bytes += bytes;
      stats.held_bytes_by_reason[std::countr_zero(block->held_reasons)] += bytes;
    });
  }
  stats.host_spilled_bytes = counters.host_spilled_bytes;
  stats.disk_spilled_bytes = counters.disk_spilled_bytes;
  stats.spilled_bytes = stats.host_spilled_bytes + stats.disk_spilled_bytes;
  stats.host_fetched_bytes = counters.host_fetched_bytes;
  stats.disk_fetched_bytes = counters.disk_fetched_bytes;
  stats.fetched_bytes = stats.host_fetched_bytes + stats.disk_fetched_bytes;
  stats.prefetched_bytes = counters.prefetched_bytes;
  stats.prefetch_in_time_bytes = counters.prefetch_in_time_bytes;
  stats.demoted_bytes = counters.demoted_bytes;
  stats.launches = core_->launches.load();
  stats.slow_launches = counters.slow_launches;
  stats.evictions = counters.evictions;
  stats.evictions_cancelled = counters.evictions_cancelled;
  stats.faults = counters.faults;
  stats.prefetches = counters.prefetches;
  stats.prefetches_cancelled = counters.prefetches_cancelled;
  stats.stall_room_nanos = counters.stall_room_nanos;
  stats.stall_disk_nanos = counters.stall_disk_nanos;
  stats.stall_run_ahead_nanos = counters.stall_run_ahead_nanos;
  stats.largest_set_bytes = core_->largest_set_bytes;
  stats.run_ahead_bytes = std::max(core_->options.run_ahead_bytes, stats.largest_set_bytes);
  return stats;
}

void DeviceResidency::MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const {
  const ResidencyStats stats = Stats();
  const uint64_t used = stats.resident_bytes + stats.others_bytes;
  *total_bytes = stats.budget_bytes;
  *free_bytes = stats.budget_bytes > used ? stats.budget_bytes - used : 0;
}

void DeviceResidency::Shutdown() {
  if (core_->closed.exchange(true)) return;
  {
    os::MutexLock lock(&core_->table.mu);  // who has looked at `closed` and not begun to wait yet holds it
    core_->table.changed.NotifyAll();
  }
  if (thread_ != nullptr) thread_->Stop();
}

void DeviceResidency::AbandonAfterFork() {
  core_->closed.store(true);
  if (thread_ != nullptr) thread_->Abandon();
}

void DeviceResidency::CheckInvariants() {
  os::MutexLock lock(&core_->table.mu);
  core_->table.CheckInvariantsLocked();
  core_->space.CheckInvariants();
  uint64_t live = 0;
  uint64_t backing = 0;
  core_->table.ForEachLocked([&](Block* block) {
    if (block->live()) live += block->chunks;
    backing += block->handles.size();
  });
  SPILLWAY_CHECK(live + core_->promised_chunks == core_->live_chunks);
  // Chunks between owners (a claim creating, a release under way) are in neither sum.
  SPILLWAY_CHECK(backing + core_->chunks.free() <= core_->chunks.held());
}

}  // namespace spillway::allocator
