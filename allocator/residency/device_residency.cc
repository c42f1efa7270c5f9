#include "allocator/residency/device_residency.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "allocator/residency/audit.h"
#include "allocator/residency/test_points.h"
#include "io/os/check.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {

#ifdef SPILLWAY_TEST_HOOKS
std::atomic<Mutant> active_mutant{Mutant::kNone};
std::atomic<void (*)(const char*)> delay_function{nullptr};
std::atomic<SelectionWatch*> selection_watch{nullptr};
#endif

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
  std::unique_ptr<DeviceResidency> residency;
  if (parts.audit != nullptr) {
    residency = std::make_unique<AuditedResidency>(options, parts);
  } else {
    residency = std::make_unique<DeviceResidency>(options, parts);
  }
  SPILLWAY_RETURN_IF_ERROR(residency->Start());
  return std::unique_ptr<Residency>(std::move(residency));
}

DeviceResidency::DeviceResidency(const ResidencyOptions& options, const ResidencyParts& parts)
    : core_(std::make_unique<Core>(WithDefaults(options), parts)) {}

DeviceResidency::~DeviceResidency() {
  Shutdown();
  if (!left_behind_) return;
  // A thread of ours is stuck in the driver and may come back: what it uses stays.
  static_cast<void>(thread_.release());
  static_cast<void>(copies_.release());
  static_cast<void>(core_.release());
}

absl::Status DeviceResidency::Start() {
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  SPILLWAY_ASSIGN_OR_RETURN(
      copies_, CopyStreams::Create(core_->parts.driver, &core_->clock, &core_->error, core_->waits));
  thread_ = std::make_unique<DeviceThread>(core_.get(), copies_.get());
  {
    os::MutexLock lock(&core_->table.mu);
    core_->budget = {core_->options.budget_bytes, core_->options.others_share_bytes, 0, 0};
    core_->RestoreTargetLocked();
  }
  return thread_->Start();
}

// ---- Streams, capture, foreign memory.

void DeviceResidency::OnStreamDestroy(CUstream stream) {
  if (core_->closed.load()) return;
  if (core_->parts.observer != nullptr) core_->parts.observer->OnInterrupt();
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  core_->clock.OnDestroy(stream);
}

void DeviceResidency::OnCaptureBegin(CUstream stream) {
  if (core_->closed.load()) return;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  const StreamIndex index = core_->clock.Find({stream, false});
  // What came past the gate is numbered, too; and other streams may join the capture. None can be covered in it.
  if (index != kNoStream) core_->clock.Next(index, 0);
  core_->clock.CoverAll();
  captures_.fetch_add(1);
  if (core_->parts.observer != nullptr) core_->parts.observer->OnInterrupt();
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
    for (const ChunkHandle chunk : chunks) core_->error.Note(ReleaseChunk(core_->parts.driver, chunk));
    const int64_t now = os::Clock::System()->NowNanos();
    os::MutexLock lock(&core_->table.mu);
    if (core_->chunks.excess() == 0 || core_->stopped.load()) return;
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

absl::Status DeviceResidency::StopEvicting() {
  core_->map_at_once.store(true);
  core_->evict.store(false);
  const CUresult result = DeviceResidency::RunReachingAll({}, {}, 0, [] { return CUDA_SUCCESS; });
  if (core_->error.any()) return core_->error.status(*core_->parts.driver);
  return result == CUDA_SUCCESS ? absl::OkStatus() : absl::ResourceExhaustedError(LastError());
}

bool DeviceResidency::ReleaseForOthers(uint64_t bytes_wanted) {
  if (core_->stopped.load()) return false;
  const uint64_t wanted = std::max<uint64_t>(bytes_wanted, 32 << 20) / core_->chunk_bytes + 1;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  uint64_t released = 0;
  for (int round = 0; round < 2 && released < wanted; ++round) {
    std::vector<ChunkHandle> chunks;
    {
      os::MutexLock lock(&core_->table.mu);
      core_->chunks.BeginRelease(std::min(core_->chunks.free(), wanted - released), &chunks);
    }
    for (const ChunkHandle chunk : chunks) core_->error.Note(ReleaseChunk(core_->parts.driver, chunk));
    released += chunks.size();
    if (released < wanted && round == 0) StripCache(wanted - released).IgnoreError();
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
    stats.peak_live_bytes = core_->peak_live_chunks * core_->chunk_bytes;
    stats.peak_requested_bytes = core_->peak_requested_bytes;
    stats.others_bytes = core_->budget.others;
    stats.largest_set_bytes = core_->table.launch_sets.peak_bytes();
    stats.cached_bytes = core_->table.ChunksLocked(BlockState::kCached) * core_->chunk_bytes;
    core_->table.ForEachLiveLocked([&](Block* block) {
      const uint64_t bytes = block->chunks * core_->chunk_bytes;
      if (block->holds_chunks()) stats.resident_bytes += bytes;
      stats.clean_copy_bytes += block->copy_homes.size() * core_->chunk_bytes;
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
  stats.launches = core_->launches.load();
  stats.slow_launches = counters.slow_launches;
  stats.evictions = counters.evictions;
  stats.evictions_cancelled = counters.evictions_cancelled;
  stats.faults = counters.faults;
  stats.prefetches = counters.prefetches;
  stats.prefetches_cancelled = counters.prefetches_cancelled;
  stats.clean_drops = counters.clean_drops;
  stats.clean_drop_bytes = counters.clean_drop_bytes;
  stats.hash_mismatches = counters.changed_copies;
  stats.early_copies = counters.early_copies;
  stats.stall_room_nanos = counters.stall_room_nanos;
  stats.stall_disk_nanos = counters.stall_disk_nanos;
  stats.held_back_nanos = counters.held_back_nanos;
  stats.lost_room_nanos = counters.lost_room_nanos;
  stats.lost_read_nanos = counters.lost_read_nanos;
  stats.lost_run_ahead_nanos = counters.lost_run_ahead_nanos;
  stats.in_time_bytes = counters.in_time_bytes;
  stats.host_out_rate = core_->lane(Lane::kHostOut).rate();
  stats.disk_out_rate = core_->lane(Lane::kDiskOut).rate();
  stats.host_in_rate = core_->lane(Lane::kHostIn).rate();
  stats.disk_in_rate = core_->lane(Lane::kDiskIn).rate();
  stats.run_ahead_bytes = std::max(core_->options.run_ahead_bytes, stats.largest_set_bytes);
  return stats;
}

Residency::HeldChunks DeviceResidency::ChunksHeld() const {
  os::MutexLock lock(&core_->table.mu);
  return {core_->chunks.held() * core_->chunk_bytes, core_->chunks.peak_held() * core_->chunk_bytes};
}

void DeviceResidency::MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const {
  os::MutexLock lock(&core_->table.mu);
  const uint64_t used = ResidentBytesLocked() + core_->budget.others;
  *total_bytes = core_->options.budget_bytes;
  *free_bytes = *total_bytes > used ? *total_bytes - used : 0;
}

uint64_t DeviceResidency::ResidentBytesLocked() const {
  uint64_t chunks = 0;
  for (const BlockState state : {BlockState::kResident, BlockState::kEvicting, BlockState::kFaulting})
    chunks += core_->table.ChunksLocked(state);
  return chunks * core_->chunk_bytes;
}

void DeviceResidency::Shutdown() {
  if (core_->closed.exchange(true)) return;
  {
    os::MutexLock lock(&core_->table.mu);  // who has looked at `stopped` and not begun to wait yet holds it
    core_->Stop();
  }
  if (thread_ != nullptr && !thread_->Stop()) left_behind_ = true;
  if (!core_->hash.Stop()) left_behind_ = true;
}

void DeviceResidency::AbandonAfterFork() {
  core_->closed.store(true);
  core_->stopped.store(true);
  if (thread_ != nullptr) thread_->Abandon();
  core_->hash.Abandon();
}

void DeviceResidency::CheckInvariants() {
  os::MutexLock lock(&core_->table.mu);
  core_->table.CheckInvariantsLocked();
  core_->space.CheckInvariants();
  uint64_t live = 0;
  uint64_t live_blocks = 0;
  uint64_t backing = 0;
  core_->table.ForEachLocked([&](Block* block) {
    if (block->live()) live += block->chunks;
    live_blocks += block->live() ? 1 : 0;
    backing += block->handles.size();
  });
  SPILLWAY_CHECK(live + core_->promised_chunks == core_->live_chunks);
  SPILLWAY_CHECK(live_blocks == core_->live_blocks);
  // Chunks between owners (a claim creating, a release under way) are in neither sum.
  SPILLWAY_CHECK(backing + core_->chunks.free() <= core_->chunks.held());
}

}  // namespace spillway::allocator
