// Faulter, for chunks on disk: reads into staging, and copies to the GPU from there. Device's thread, but for the ends of
// reads.

#include <algorithm>
#include <utility>

#include "allocator/residency/faulter.h"
#include "allocator/residency/test_points.h"
#include "io/os/check.h"
#include "io/os/clock.h"

namespace spillway::allocator {
namespace {

// Staging pieces that prefetches leave for demand faults, where there are enough.
constexpr size_t kStagingKeptForDemand = 2;

}  // namespace

bool Faulter::SubmitReads(FetchJob* job, bool demanded, bool others_demand) {
  bool progress = false;
  const std::vector<ChunkHome>& homes = job->block->homes;
  while (NextDiskChunk(job)) {
    HostPool* const host = core_->parts.host;
    const size_t kept = std::min(kStagingKeptForDemand, host->Limit(HostUse::kFaultStaging) / 2);
    if (!demanded && (others_demand || host->Free(HostUse::kFaultStaging) <= kept)) break;
    std::vector<HostPiece> piece;
    if (host->Take(HostUse::kFaultStaging, 1, &piece) == 0) break;
    size_t chunk = job->next_chunk;
    if (job->again.empty()) {
      ++job->next_chunk;
    } else {
      chunk = job->again.back();
      job->again.pop_back();
    }
    job->staged.push_back({chunk, piece[0], false, nullptr});
    const uint32_t bytes = core_->BytesOfChunk(*job->block, chunk);
    core_->lane(Lane::kDiskIn).Begin(os::Clock::System()->NowNanos());
    core_->parts.disk->Read(homes[chunk].slot, piece[0].data, bytes,
                            demanded ? io::Priority::kDemand : io::Priority::kPrefetch,
                            [this, job, chunk, bytes](absl::Status status) {
                              const int64_t now = os::Clock::System()->NowNanos();
                              core_->lane(Lane::kDiskIn).End(status.ok() ? bytes : 0, now);
                              {
                                os::MutexLock lock(&results_mu_);
                                results_.push_back({job, chunk, std::move(status)});
                              }
                              wake_();
                            });
    progress = true;
  }
  return progress;
}

// Whether a chunk is left to be read: one of `again`, or the one at next_chunk.
bool Faulter::NextDiskChunk(FetchJob* job) {
  const std::vector<ChunkHome>& homes = job->block->homes;
  while (job->next_chunk < homes.size() && !homes[job->next_chunk].on_disk) ++job->next_chunk;
  return !job->again.empty() || job->next_chunk < homes.size();
}

bool Faulter::CollectReads() {
  std::vector<ReadResult> results;
  {
    os::MutexLock lock(&results_mu_);
    results.swap(results_);
  }
  for (ReadResult& result : results) {
    const auto staged = std::find_if(result.job->staged.begin(), result.job->staged.end(),
                                     [&](const auto& s) { return s.chunk == result.chunk; });
    SPILLWAY_CHECK(staged != result.job->staged.end());
    if (absl::IsCancelled(result.status)) {
      core_->parts.host->Give(HostUse::kFaultStaging, staged->piece);
      result.job->again.push_back(result.chunk);
      result.job->staged.erase(staged);
      continue;
    }
    staged->read = true;
    if (!result.status.ok() && result.job->lost.ok()) result.job->lost = std::move(result.status);
  }
  return !results.empty();
}

bool Faulter::EnqueueReadChunks(FetchJob* job) {
  bool progress = false;
  for (FetchJob::StagedChunk& staged : job->staged) {
    const bool read = staged.read || SPILLWAY_MUTANT(kReadNotAwaited);
    if (!read || staged.copied != nullptr || !job->failure.ok()) continue;
    job->failure = copies_->In(job->block->address + staged.chunk * core_->chunk_bytes, staged.piece.data,
                               core_->BytesOfChunk(*job->block, staged.chunk));
    if (!job->failure.ok()) break;
    absl::StatusOr<CUevent> mark = copies_->MarkIn();
    job->failure = mark.status();
    if (!job->failure.ok()) break;
    staged.copied = *mark;
    --job->disk_chunks_left;
    progress = true;
  }
  return progress;
}

bool Faulter::ReturnStaging(FetchJob* job) {
  const size_t before = job->staged.size();
  std::erase_if(job->staged, [&](const FetchJob::StagedChunk& staged) {
    if (staged.copied == nullptr) return false;
    if (!SPILLWAY_MUTANT(kStagingGivenEarly) && !copies_->Done(staged.copied)) return false;
    core_->clock.GiveEvent(staged.copied);
    core_->parts.host->Give(HostUse::kFaultStaging, staged.piece);
    return true;
  });
  return job->staged.size() != before;
}

}  // namespace spillway::allocator
