#include "allocator/residency/transfer/faulter.h"

#include <algorithm>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/mapping.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

// In ns: the plan does not ask again for a block that cannot be read before this time has passed.
constexpr int64_t kPauseAfterUnreadable = 10'000'000'000;

}  // namespace

Faulter::Faulter(Core* core, const Parts& parts, std::function<void()> wake)
    : core_(core),
      charges_(parts.charges),
      addresses_(parts.addresses),
      clean_(parts.clean),
      copies_(parts.copies),
      reach_(parts.reach),
      end_soft_(parts.end_soft),
      hash_(parts.hash),
      wake_(std::move(wake)),
      copy_in_(core, parts.copies, wake_) {}

Faulter::~Faulter() = default;

// ---- Starting.

void Faulter::BeginLocked(const TableLock& lock, Block* block, std::vector<ChunkHandle> handles,
                          bool prefetch) {
  lock.Covers(core_->table);
  SPILLWAY_CHECK(block->state == BlockState::kSpilled && block->fetch.job == nullptr &&
                 ChunksOf(handles) == block->device_chunks());
  block->memory.handles = std::move(handles);
  block->memory.peers = 0;
  block->fetch.job =
      new FetchJob;  // owned by jobs_ once posted; every fetch is posted or undone by its starter
  block->fetch.job->block = block;
  block->fetch.job->demanded = !prefetch;
  block->fetch.job->began = os::Clock::System()->NowNanos();
  block->fetch.prefetched = prefetch;
  block->fetch.arrival = nullptr;
  block->fetch.failure = absl::OkStatus();
  core_->table.MoveLocked(lock, block, BlockState::kFaulting);
}

absl::Status Faulter::Start(Block* block) {
  FetchJob* const job = block->fetch.job;
  bool mapped = false;
  // The device's thread exchanges a mapping. No other thread changes `soft` during the fetch.
  absl::Status status = block->memory.soft ? absl::OkStatus() : BringIn(job, &mapped);
  const TableLock lock(core_->table);
  if (status.ok()) {
    posted_.push_back(job);
    wake_();
  } else if (!mapped) {
    GiveUpLocked(lock, job);
    delete job;
  }
  return status;
}

// Maps the block and enqueues the copies that are possible at once. If it fails with `mapped` true, the
// device has an error.
absl::Status Faulter::BringIn(FetchJob* job, bool* mapped) {
  SPILLWAY_RETURN_IF_ERROR(MapBlock(core_, *job->block));
  *mapped = true;
  absl::Status status = copy_in_.EnqueueHostExtents(job);
  if (status.ok() && job->still) EnqueueHash(job);
  if (status.ok() && job->disk_extents_left == 0) {
    job->from_host = true;
    core_->link.Begin(LinkDirection::kIn, os::Clock::System()->NowNanos());
    if (!ChecksArrival(*job)) status = copy_in_.MarkArrival(job);
  }
  if (!status.ok()) *mapped = !TakeMappingBack(job);
  return status;
}

// The block stays where it was.
void Faulter::GiveUpLocked(const TableLock& lock, FetchJob* job) {
  Block* const block = job->block;
  charges_->chunks(lock).Give(&block->memory.handles);
  reach_->TakeBackLocked(lock, block);
  EndMeasuring(job, 0);
  ForgetHash(job);
  if (job->still && !block->memory.soft)
    block->copies.content_known = false;  // the block may have been written, and was not compared
  block->fetch.job = nullptr;
  job->block = nullptr;
  BackToSpilledLocked(lock, block);
}

// Copies may be under way and must end before the mapping goes. This is rare, so it simply waits. Returns
// false when the mapping stays, with the device's error.
bool Faulter::TakeMappingBack(FetchJob* job) {
  return copies_->AwaitEndIn().ok() && UnmapBlock(core_, *job->block).ok();
}

absl::Status Faulter::MapEmpty(Block* block) {
  const absl::Status status = MapBlock(core_, *block);
  const TableLock lock(core_->table);
  block->memory.mapping = false;
  if (status.ok()) {
    core_->table.MoveLocked(lock, block, BlockState::kResident);
  } else {
    charges_->chunks(lock).Give(&block->memory.handles);
    reach_->TakeBackLocked(lock, block);
  }
  if (block->allocation.freed) {
    core_->table.MoveLocked(lock, block, status.ok() ? BlockState::kCached : BlockState::kFree);
    addresses_->FinishFree(lock, block);
    wake_();  // recorded streams may keep the block
  }
  core_->table.changed.NotifyAll();
  return status;
}

void Faulter::DemandLocked(const TableLock& lock, Block* block) {
  lock.Covers(core_->table);
  FetchJob* const job = block->fetch.job;
  job->cancelled = block->allocation.freed;
  if (job->demanded) return;
  job->demanded = true;
  for (const ExtentHome& home : block->copies.homes) {
    if (home.on_disk()) core_->parts.disk->Promote(home.slot);
  }
  wake_();
}

// ---- The device's thread.

bool Faulter::Poll() {
  bool progress = copy_in_.CollectReads();
  bool demand = false;
  {
    const TableLock lock(core_->table);
    for (FetchJob* job : posted_) jobs_.emplace_back(job);
    posted_.clear();
    GiveRetiredLocked(lock);
    for (const auto& job : jobs_) {
      demand |= job->demanded && (job->next_extent < job->block->copies.homes.size() || !job->again.empty());
    }
  }
  for (const auto& job : jobs_) {
    progress |= Advance(job.get(), demand);
    if (job->block == nullptr) core_->standstill.Leave(&job->still);
  }
  std::erase_if(jobs_, [](const auto& job) { return job->block == nullptr; });
  return progress;
}

// The stage of a fetch follows from its fields. If there is an arrival event, everything has been enqueued.
// If the block is soft, its mapping must be exchanged first. A canceled or failed fetch drains. Any other
// fetch submits reads and enqueues copies, and may then have its bytes hashed.
bool Faulter::Advance(FetchJob* job, bool any_demanded) {
  bool demanded;
  bool cancelled;
  bool enqueued;
  bool soft;
  {
    const TableLock lock(core_->table);
    demanded = job->demanded;
    cancelled = job->cancelled;
    enqueued = job->block->fetch.arrival != nullptr;
    soft = job->block->memory.soft;
  }
  bool progress = copy_in_.ReturnStaging(job);
  if (enqueued) return CompleteArrival(job) || progress;
  if (soft) return Exchange(job) || progress;
  if (!job->unreadable.ok()) RecordUnreadable(job);
  if (cancelled || !job->failure.ok()) return Drain(job) || progress;
  ForgetDrain(job);
  if (job->copied != nullptr || job->hashed != nullptr) return CheckArrival(job) || progress;
  progress |= copy_in_.SubmitReads(job, demanded, any_demanded);
  progress |= copy_in_.EnqueueReadExtents(job);
  if (job->failure.ok() && job->disk_extents_left == 0) {
    SPILLWAY_DELAY_POINT("faulter.before_arrival");
    if (ChecksArrival(*job)) return BeginCheck(job) || progress;
    job->failure = copy_in_.MarkArrival(job);
    progress = true;
  }
  return progress;
}

// The last copy has been enqueued. The block is whole when its event has completed.
bool Faulter::CompleteArrival(FetchJob* job) {
  if (!SPILLWAY_MUTANT(kPublishBeforeEvent) && !copies_->Done(job->block->fetch.arrival)) return false;
  if (!job->staged.empty()) copy_in_.ReturnStaging(job);
  if (!job->staged.empty()) return false;
  Publish(job);
  return true;
}

// The block is whole. Its spilled copy is kept or released.
void Faulter::Publish(FetchJob* job) {
  Block* const block = job->block;
  uint64_t host_bytes = 0;
  uint64_t disk_bytes = 0;
  for (size_t i = 0; i < block->copies.homes.size(); ++i) {
    const bool on_disk = block->copies.homes[i].on_disk();
    if (on_disk || i < block->device_chunks())
      (on_disk ? disk_bytes : host_bytes) += core_->BytesOfExtent(*block, i);
  }
  EndMeasuring(job, host_bytes);
  core_->counters.host_fetched_bytes += host_bytes;
  core_->counters.disk_fetched_bytes += disk_bytes;
  const int64_t now = os::Clock::System()->NowNanos();
  core_->ReportMove({MoveKind::kHostToGpu, block->id, host_bytes, job->began, now});
  core_->ReportMove({MoveKind::kDiskToGpu, block->id, disk_bytes, job->began, now});
  const TableLock lock(core_->table);
  if (job->still) CompareLocked(lock, job);
  if (block->fetch.prefetched) {
    core_->counters.prefetched_bytes += host_bytes + disk_bytes;
    // No launch has asked for the block so far: it was here before its launch reached the gate.
    if (!job->demanded) core_->counters.prefetch_in_time_bytes += host_bytes + disk_bytes;
  }
  CountLateness(*job, host_bytes + disk_bytes);
  // The event is not reused at once. If it were recorded for other work, it could tie the stream of a launch
  // in preparation to that work.
  if (block->fetch.arrival != nullptr && block->pins > 0) {
    retired_.push_back({block, block->fetch.arrival});
  } else if (block->fetch.arrival != nullptr) {
    core_->clock.GiveEvent(block->fetch.arrival);
  }
  block->fetch.arrival = nullptr;
  block->fetch.job = nullptr;
  job->block = nullptr;
  reach_->SettleLocked(lock, block);
  if (block->allocation.freed) {
    ReleaseHomesLocked(lock, block);
    core_->table.MoveLocked(lock, block, BlockState::kCached);
    addresses_->FinishFree(lock, block);
  } else {
    KeepCopyLocked(lock, block);
    core_->table.MoveLocked(lock, block, BlockState::kResident);
  }
  core_->table.changed.NotifyAll();
}

// Ends the measurement for the rate of the link, if all of the block came from host memory.
void Faulter::EndMeasuring(FetchJob* job, uint64_t bytes) {
  if (job->from_host) core_->link.End(LinkDirection::kIn, bytes, os::Clock::System()->NowNanos());
  job->from_host = false;
}

// Counts whether the GPU had to wait for the bytes, and how long. A launch that names them is behind them in
// its stream, or its thread waits.
void Faulter::CountLateness(const FetchJob& job, uint64_t bytes) {
  const int64_t now = os::Clock::System()->NowNanos();
  if (job.waiter.stream != kNoStream && core_->clock.Completed(job.waiter)) {
    const int64_t lost = core_->clock.TakeLost(core_->clock.LastCompletedAt(job.waiter.stream), now);
    const auto lost_nanos = static_cast<uint64_t>(lost);
    core_->counters.lost_arrival_nanos += lost_nanos;
    if (lost > 0) {
      core_->ReportStall(
          {StallCause::kGpuArrival, job.block->id, job.waiter_tag, now - lost, lost_nanos, lost_nanos});
    }
  } else if (!job.demanded || job.waiter.stream != kNoStream || core_->clock.UncompletedLaunches() > 0) {
    core_->counters.in_time_bytes += bytes;
  }
}

// ---- Taking a fetch back: the work under way ends first, then the chunks are unmapped. Nothing is given up
// until then, because a launch may want the block after all.

bool Faulter::Drain(FetchJob* job) {
  Block* const block = job->block;
  for (FetchJob::StagedExtent& staged : job->staged) {
    if (staged.copied == nullptr && !staged.read) return false;  // a read is still writing into it
  }
  if (job->drained == nullptr) {
    absl::StatusOr<CUevent> mark = copies_->MarkIn();
    if (mark.ok()) job->drained = *mark;
    if (!mark.ok() && core_->error.any()) return false;  // nothing moves any more
  }
  // If no mark could be recorded, MarkIn has waited for the copies. A hash runs on a stream of its own.
  if (job->drained != nullptr && !copies_->Done(job->drained)) return false;
  if (job->hashed != nullptr && !copies_->Done(job->hashed)) return false;
  ForgetDrain(job);
  SPILLWAY_DELAY_POINT("faulter.before_unmap");
  {
    const TableLock lock(core_->table);
    if (!job->cancelled && job->failure.ok()) return true;  // demanded again meanwhile
    copy_in_.DropStaging(job);
    if (block->allocation.freed) {
      reach_->SettleLocked(lock, block);
      ReleaseHomesLocked(lock, block);
      EndMeasuring(job, 0);
      ForgetHash(job);
      block->fetch.job = nullptr;
      job->block = nullptr;
      core_->table.MoveLocked(lock, block, BlockState::kCached);
      addresses_->FinishFree(lock, block);
      core_->table.changed.NotifyAll();
      return true;
    }
    block->memory.mapping = true;
  }
  SPILLWAY_DELAY_POINT("faulter.committed");
  if (!UnmapBlock(core_, *block).ok())
    return true;  // the device's error from now on; the block stays as it is
  const TableLock lock(core_->table);
  block->memory.mapping = false;
  ++core_->counters.prefetches_cancelled;
  block->fetch.failure = job->failure;
  GiveUpLocked(lock, job);
  return true;
}

// Nothing waits for the mark any more; it may be recorded again before it has completed.
void Faulter::ForgetDrain(FetchJob* job) {
  if (job->drained != nullptr) core_->clock.GiveEvent(job->drained);
  job->drained = nullptr;
}

void Faulter::BackToSpilledLocked(const TableLock& lock, Block* block) {
  core_->table.MoveLocked(lock, block, BlockState::kSpilled);
  if (block->allocation.freed && block->memory.soft) {
    end_soft_(lock, block);
  } else if (block->allocation.freed) {
    ReleaseHomesLocked(lock, block);
    core_->table.MoveLocked(lock, block, BlockState::kFree);
    addresses_->FinishFree(lock, block);
  }
  core_->table.changed.NotifyAll();
}

bool Faulter::CancelPrefetchesLocked(const TableLock& lock) {
  lock.Covers(core_->table);
  bool any = false;
  for (const auto& job : jobs_) {
    if (job->block == nullptr || job->demanded || job->cancelled || job->block->fetch.arrival != nullptr)
      continue;
    if (job->block->pins > 0) continue;
    job->cancelled = true;
    any = true;
    for (const ExtentHome& home : job->block->copies.homes) {
      if (home.on_disk()) core_->parts.disk->CancelPrefetch(home.slot);
    }
  }
  return any;
}

void Faulter::GiveRetiredLocked(const TableLock& lock) {
  std::erase_if(retired_, [this](const Retired& retired) {
    if (retired.block->pins > 0) return false;
    core_->clock.GiveEvent(retired.event);
    return true;
  });
}

size_t Faulter::prefetches_under_way() const {
  return std::count_if(jobs_.begin(), jobs_.end(),
                       [](const auto& job) { return job->block->fetch.prefetched; });
}

void Faulter::ReleaseHomesLocked(const TableLock& lock, Block* block) {
  clean_->Release(lock, &block->copies.homes);
  block->copies.content_known = false;
}

// The bytes from which the block was read are still its content: good for the next eviction, if the block
// does not change.
void Faulter::KeepCopyLocked(const TableLock& lock, Block* block) {
  const bool keep = block->copies.copy_kept && block->copies.content_known && block->memory.reached.empty();
  if (!keep) return ReleaseHomesLocked(lock, block);
  clean_->Keep(lock, block, std::move(block->copies.homes), block->copies.content);
  block->copies.homes.clear();
}

// A block whose only copy cannot be read stays away, and launches that name it are refused with a message, so
// that the job can save what it has. Each such launch tries again.
void Faulter::RecordUnreadable(FetchJob* job) {
  const TableLock lock(core_->table);
  const absl::Status why = std::exchange(job->unreadable, absl::OkStatus());
  if (job->block->allocation.freed) {  // the bytes are not needed any more
    job->cancelled = true;
    return;
  }
  job->failure = absl::DataLossError(
      "a block of " + std::to_string(job->block->allocation.requested_bytes) +
      " bytes was moved out of the GPU and cannot be read back, and there is no other copy. " +
      std::string(why.message()));
  job->block->fetch.again_at = os::Clock::System()->NowNanos() + kPauseAfterUnreadable;
}

}  // namespace spillway::allocator
