#include "allocator/residency/transfer/copy_in.h"

#include <algorithm>
#include <utility>

#include "allocator/memory/test_points.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"

namespace spillway::allocator {
namespace {

// Staging buffers that prefetches leave for demand faults, if there are enough.
constexpr size_t kStagingKeptForDemand = 2;

}  // namespace

CopyIn::CopyIn(Core* core, CopyStreams* copies, std::function<void()> wake)
    : core_(core), copies_(copies), wake_(std::move(wake)) {}

absl::Status CopyIn::EnqueueHostExtents(FetchJob* job) {
  Block* const block = job->block;
  const std::vector<ExtentHome>& homes = block->copies.homes;
  job->disk_extents_left = std::ranges::count_if(homes, &ExtentHome::on_disk);
  absl::Status status;
  // Extents that are reached stay where they are.
  ForEachHostRun(homes, block->device_chunks(), core_->chunk_bytes, [&](size_t first, size_t count) {
    if (!status.ok()) return;
    status = copies_->In(block->address + first * core_->chunk_bytes, homes[first].buffer.data,
                         core_->BytesOfExtents(*block, first, count));
  });
  return status;
}

absl::Status CopyIn::MarkArrival(FetchJob* job) {
  SPILLWAY_ASSIGN_OR_RETURN(const CUevent mark, copies_->MarkIn());
  const TableLock lock(core_->table);
  job->block->fetch.arrival = mark;
  core_->table.changed.NotifyAll();
  return absl::OkStatus();
}

bool CopyIn::SubmitReads(FetchJob* job, bool demanded, bool any_demanded) {
  bool progress = false;
  const std::vector<ExtentHome>& homes = job->block->copies.homes;
  while (NextDiskExtent(job)) {
    HostPool* const host = core_->parts.host;
    const size_t limit = host->Limit(HostUse::kFaultStaging);
    if (limit == 0) {
      job->failure = absl::UnavailableError(
          "no staging buffer is left to read with: a disk that does not answer may still write to each");
      return true;
    }
    const size_t kept = std::min(kStagingKeptForDemand, limit / 2);
    if (!demanded && (any_demanded || host->Free(HostUse::kFaultStaging) <= kept)) break;
    std::vector<PinnedBuffer> buffer;
    if (host->Take(HostUse::kFaultStaging, 1, &buffer) == 0) break;
    size_t extent = job->next_extent;
    if (job->again.empty()) {
      ++job->next_extent;
    } else {
      extent = job->again.back();
      job->again.pop_back();
    }
    job->staged.push_back({.extent = extent, .buffer = buffer[0]});
    const uint32_t bytes = core_->BytesOfExtent(*job->block, extent);
    core_->copy_queue(CopyQueue::kDiskIn).Begin(os::Clock::System()->NowNanos());
    core_->parts.disk->Read(homes[extent].slot, buffer[0].data, bytes,
                            demanded ? io::Priority::kDemand : io::Priority::kPrefetch,
                            [this, job, extent, bytes](absl::Status status) {
                              const int64_t now = os::Clock::System()->NowNanos();
                              core_->copy_queue(CopyQueue::kDiskIn).End(status.ok() ? bytes : 0, now);
                              {
                                os::MutexLock lock(&results_mu_);
                                results_.push_back({job, extent, std::move(status)});
                              }
                              wake_();
                            });
    progress = true;
  }
  return progress;
}

// Whether an extent is left to be read: one of `again`, or the one at next_extent.
bool CopyIn::NextDiskExtent(FetchJob* job) {
  const std::vector<ExtentHome>& homes = job->block->copies.homes;
  while (job->next_extent < homes.size() && !homes[job->next_extent].on_disk()) ++job->next_extent;
  return !job->again.empty() || job->next_extent < homes.size();
}

bool CopyIn::CollectReads() {
  std::vector<ReadResult> results;
  {
    os::MutexLock lock(&results_mu_);
    results.swap(results_);
  }
  for (ReadResult& result : results) {
    const auto staged = std::find_if(result.job->staged.begin(), result.job->staged.end(),
                                     [&](const auto& s) { return s.extent == result.extent; });
    SPILLWAY_CHECK(staged != result.job->staged.end());
    if (absl::IsCancelled(result.status)) {
      core_->parts.host->Give(HostUse::kFaultStaging, staged->buffer);
      result.job->again.push_back(result.extent);
      result.job->staged.erase(staged);
      continue;
    }
    staged->read = true;
    staged->lent = absl::IsDeadlineExceeded(result.status);
    if (!result.status.ok() && result.job->unreadable.ok()) result.job->unreadable = std::move(result.status);
  }
  return !results.empty();
}

bool CopyIn::EnqueueReadExtents(FetchJob* job) {
  bool progress = false;
  for (FetchJob::StagedExtent& staged : job->staged) {
    const bool read = staged.read || SPILLWAY_MUTANT(kReadNotAwaited);
    if (!read || staged.copied != nullptr || !job->failure.ok()) continue;
    job->failure = copies_->In(job->block->address + staged.extent * core_->chunk_bytes, staged.buffer.data,
                               core_->BytesOfExtent(*job->block, staged.extent));
    if (!job->failure.ok()) break;
    absl::StatusOr<CUevent> mark = copies_->MarkIn();
    job->failure = mark.status();
    if (!job->failure.ok()) break;
    staged.copied = *mark;
    --job->disk_extents_left;
    progress = true;
  }
  return progress;
}

bool CopyIn::ReturnStaging(FetchJob* job) {
  const size_t before = job->staged.size();
  std::erase_if(job->staged, [&](const FetchJob::StagedExtent& staged) {
    if (staged.copied == nullptr) return false;
    if (!SPILLWAY_MUTANT(kStagingGivenEarly) && !copies_->Done(staged.copied)) return false;
    core_->clock.GiveEvent(staged.copied);
    GiveStaging(staged);
    return true;
  });
  return job->staged.size() != before;
}

void CopyIn::DropStaging(FetchJob* job) {
  for (const FetchJob::StagedExtent& staged : job->staged) {
    if (staged.copied != nullptr) core_->clock.GiveEvent(staged.copied);
    GiveStaging(staged);
  }
  job->staged.clear();
}

void CopyIn::GiveStaging(const FetchJob::StagedExtent& staged) {
  HostPool* const host = core_->parts.host;
  staged.lent ? host->Abandon(HostUse::kFaultStaging) : host->Give(HostUse::kFaultStaging, staged.buffer);
}

}  // namespace spillway::allocator
