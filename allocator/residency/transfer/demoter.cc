#include "allocator/residency/transfer/demoter.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/tier/shared_capacity.h"
#include "io/os/clock.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

constexpr size_t kMaxWrites = 4;                  // under way at once: evictions and reads need the disk, too
constexpr int64_t kScanInterval = 1'000'000'000;  // ns
constexpr int64_t kPauseAfterFailure = 10'000'000'000;
constexpr int64_t kPauseWhileAsked = 100'000'000;  // instead, while a launch waits
// Demotion begins when less than 1 / kFreePart of the host tier is free, and ends when twice as much is free.
constexpr size_t kFreePart = 16;

}  // namespace

Demoter::Demoter(Core* core, SoftBlocks* soft, std::function<void()> wake)
    : core_(core), soft_(soft), wake_(std::move(wake)) {}

bool Demoter::Poll(const Request& request, const PlannedUses& planned) {
  request_ = request;
  const bool progress = !jobs_.empty() && CollectWrites();
  if (core_->parts.host == nullptr || core_->parts.disk == nullptr || core_->error.any()) return progress;
  const int64_t now = os::Clock::System()->NowNanos();
  if (now < again_at_ || (!progress && request.buffers == 0 && now < scan_at_)) return progress;
  scan_at_ = now + std::min(kScanInterval, core_->options.idle_nanos);
  const SharedCapacity* const capacity = core_->parts.capacity;
  if (WantedBuffers() == 0 || (capacity != nullptr && capacity->writes_spent())) return progress;
  {
    const TableLock lock(core_->table);
    StartLocked(lock, planned);
  }
  for (Job* const job : begun_) {
    if (job->staging.data != nullptr) std::memcpy(job->staging.data, job->buffer.data, job->bytes);
    const std::byte* const from = job->staging.data != nullptr ? job->staging.data : job->buffer.data;
    core_->parts.disk->Write(job->slot, from, job->bytes, [this, job](absl::Status status) {
      {
        os::MutexLock lock(&results_mu_);
        job->status = std::move(status);
        job->ended = true;
      }
      wake_();
    });
  }
  const bool started = !begun_.empty();
  begun_.clear();
  return progress || started;
}

// ---- Starting.

// Number of buffers that should come free, including those whose bytes are on their way already.
uint64_t Demoter::WantedBuffers() const {
  if (request_.buffers > 0) return request_.buffers;
  const size_t free = core_->parts.host->Free(HostUse::kStorage);
  const size_t least = core_->parts.host->Limit(HostUse::kStorage) / kFreePart;
  if (free >= (jobs_.empty() ? least : 2 * least)) return 0;
  return 2 * least - free;
}

// Blocks that have been away for longest come first, and those that a launch in preparation names come last.
// A plan fills the host tier in each iteration, and an iteration may last for longer than blocks have to be
// idle. What is paused is used by no plan before its resume.
void Demoter::StartLocked(const TableLock& lock, const PlannedUses& planned) {
  const bool asked = request_.buffers > 0;
  const int64_t idle_nanos = asked ? 0 : core_->options.idle_nanos;
  const policy::LaunchIndex position = planned.Now();
  const int64_t idle_since = os::Clock::System()->NowNanos() - idle_nanos;
  std::vector<Block*> idle;
  core_->table.ForEachLocked(lock, BlockState::kSpilled, [&](Block* block) {
    if (block->eviction.spilled_at > idle_since) return;
    if (asked || block->paused() || planned.NextUse(*block, position) == policy::kNever)
      idle.push_back(block);
  });
  std::ranges::sort(
      idle, {}, [](const Block* block) { return std::pair(block->pins > 0, block->eviction.spilled_at); });
  const uint64_t wanted = WantedBuffers();
  uint64_t ending = 0;  // buffers still mapped at their blocks' addresses, where their bytes may change
  for (Block* const block : idle) {
    if (block->memory.soft && !SPILLWAY_MUTANT(kSoftDemoted)) {
      soft_->EndLocked(lock, block);
      scan_at_ = 0;
      ending += block->chunks;
    } else if (!StartBlockLocked(lock, block, wanted)) {
      break;
    }
    if (ending >= wanted) break;  // the other blocks stay mapped
  }
}

// Returns false when no more writes can be started now.
bool Demoter::StartBlockLocked(const TableLock& lock, Block* block, uint64_t wanted) {
  const std::vector<ExtentHome>& homes = block->copies.homes;
  for (size_t extent = 0; extent < homes.size(); ++extent) {
    if (homes[extent].on_disk() || UnderWay(*block, extent)) continue;
    if (request_.keeps && request_.keeps(lock, *block, extent)) continue;
    io::SlotId slot;
    PinnedBuffer staging;
    if (jobs_.size() >= std::min<uint64_t>(kMaxWrites, wanted) || !TakeStaging(&staging)) return false;
    if (!TakeSlot(&slot)) {
      if (staging.data != nullptr) core_->parts.host->Give(HostUse::kEvictStaging, staging);
      return false;
    }
    jobs_.push_back(std::make_unique<Job>(Job{.block = block,
                                              .moves = block->table.moves,
                                              .extent = extent,
                                              .bytes = core_->BytesOfExtent(*block, extent),
                                              .buffer = homes[extent].buffer,
                                              .staging = staging,
                                              .slot = slot,
                                              .began = os::Clock::System()->NowNanos(),
                                              .status = {}}));
    core_->parts.host->BeginRead(homes[extent].buffer);
    begun_.push_back(jobs_.back().get());
  }
  return true;
}

int64_t Demoter::PauseNanos() const { return request_.buffers > 0 ? kPauseWhileAsked : kPauseAfterFailure; }

bool Demoter::UnderWay(const Block& block, size_t extent) const {
  return std::ranges::any_of(jobs_,
                             [&](const auto& job) { return job->block == &block && job->extent == extent; });
}

// It has not been tried on a machine with a GPU whether drives may read memory that is made of handles, so
// the bytes go through memory of the system.
bool Demoter::TakeStaging(PinnedBuffer* staging) {
  HostPool* const host = core_->parts.host;
  if (!host->reachable()) return true;
  std::vector<PinnedBuffer> taken;
  if (host->Take(HostUse::kEvictStaging, 1, &taken) == 0) return false;
  *staging = taken.front();
  return true;
}

bool Demoter::TakeSlot(io::SlotId* slot) {
  const absl::StatusOr<std::vector<io::SlotId>> taken = core_->parts.disk->TakeSlots(1);
  const int64_t now = os::Clock::System()->NowNanos();
  if (absl::IsResourceExhausted(taken.status())) again_at_ = now + PauseNanos();
  // Unavailable: files are being grown, or a closed directory may come back.
  if (absl::IsUnavailable(taken.status()) &&
      std::ranges::any_of(core_->parts.disk->stats().directories, &io::DirectoryStats::closed))
    core_->RecordDriveFailure(now);
  if (!taken.ok()) return false;
  *slot = taken->front();
  return true;
}

// ---- Ending.

bool Demoter::CollectWrites() {
  std::vector<std::unique_ptr<Job>> ended;
  {
    os::MutexLock lock(&results_mu_);
    const auto first =
        std::partition(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job->ended; });
    std::move(first, jobs_.end(), std::back_inserter(ended));
    jobs_.erase(first, jobs_.end());
  }
  if (ended.empty()) return false;
  const TableLock lock(core_->table);
  for (const auto& job : ended) FinishLocked(lock, *job, job->status);
  return true;
}

// The written bytes are the block's only if it has been spilled all the time. A block that came back and left
// again may have other bytes in the same buffer.
void Demoter::FinishLocked(const TableLock& lock, const Job& job, const absl::Status& status) {
  core_->parts.host->EndRead(job.buffer);
  if (job.staging.data != nullptr) core_->parts.host->Give(HostUse::kEvictStaging, job.staging);
  const bool same = job.block->state == BlockState::kSpilled && job.block->table.moves == job.moves;
  if (!status.ok()) {
    os::Log(os::LogLevel::kWarn, "bytes stay in host memory: " + std::string(status.message()));
    const int64_t now = os::Clock::System()->NowNanos();
    again_at_ = now + PauseNanos();
    if (absl::IsUnavailable(status)) core_->RecordDriveFailure(now);
  }
  if (!status.ok() || !same) {
    core_->parts.disk->ReleaseSlot(job.slot);
    return;
  }
  job.block->copies.homes[job.extent] = ExtentHome::OnDisk(job.slot);
  core_->counters.demoted_bytes += job.bytes;
  core_->ReportMove(
      {MoveKind::kHostToDisk, job.block->id, job.bytes, job.began, os::Clock::System()->NowNanos()});
  core_->parts.host->Give(HostUse::kStorage, job.buffer);
}

}  // namespace spillway::allocator
