#include "allocator/residency/transfer/copy_out.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "allocator/memory/test_points.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {

CopyOut::CopyOut(Core* core, CleanCopies* clean, HashLoader* hash, SharedCapacity* capacity,
                 CopyStreams* copies, std::function<void()> wake)
    : core_(core), clean_(clean), hash_(hash), capacity_(capacity), copies_(copies), wake_(std::move(wake)) {}

void CopyOut::TakeCopyLocked(const TableLock& lock, EvictJob* job) {
  job->has_copy = clean_->Take(lock, job->block, &job->homes, &job->content);
  job->content_known = job->keeps = job->has_copy;
}

// ---- After the last use.

// The bytes are final. A clean copy is compared with them; without one, capacity for a new copy is reserved.
// An exact job waits for a place for its hash, since its block would not stay mapped without one.
void CopyOut::Begin(EvictJob* job) {
  if (job->has_copy) {
    const absl::Status begun = BeginHash(job);
    if (WaitsForPlace(begun, job)) return;
    if (begun.ok()) {
      job->phase = EvictJob::Phase::kCompare;
      return;
    }
    ForgetCopy(job);  // without a hash the block counts as changed
  }
  if (job->homes.empty() && !ReserveHomes(job)) return;  // not empty: it waits for its hash
  bool verified = core_->options.verify_always;
  {
    const TableLock lock(core_->table);
    CopyBackoff& backoff = job->block->copies.backoff;
    job->keeps = job->exact || backoff.WantsHash() || job->KeepsChangedLocked(lock);
    verified = backoff.wants_verification() || verified || job->exact;
  }
  if (job->keeps || verified || core_->options.verify_arrivals) {
    const absl::Status begun = BeginHash(job);  // beside the copy: both only read
    if (WaitsForPlace(begun, job)) return;
  }
  job->phase = EvictJob::Phase::kCopy;
}

absl::Status CopyOut::BeginHash(EvictJob* job) {
  DeviceHash* const hash = hash_->Get();
  if (hash == nullptr) {
    hash_->ReportMissing();
    return absl::NotFoundError("there is no content hash");
  }
  SPILLWAY_ASSIGN_OR_RETURN(job->hashed, copies_->BeginHash(hash, job->block->address,
                                                            core_->BytesOfCopy(*job->block), &job->hash));
  return absl::OkStatus();
}

// Launches go on meanwhile: the next try joins a standstill of its own.
bool CopyOut::WaitsForPlace(const absl::Status& begun, EvictJob* job) {
  if (!job->exact || !absl::IsUnavailable(begun)) return false;
  core_->standstill.Leave(&job->still);
  return true;
}

bool CopyOut::HashEnded(EvictJob* job, ContentHash* result) {
  if (!copies_->Done(job->hashed)) return false;
  *result = hash_->Get()->Take(&job->hash);
  core_->clock.GiveEvent(job->hashed);
  job->hashed = nullptr;
  return true;
}

// Phase 2a: use the earlier copy if it is still good, or else give it up.
bool CopyOut::Compare(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.comparing");
  ContentHash now;
  if (!HashEnded(job, &now)) return false;
  SPILLWAY_DELAY_POINT("evictor.compared");
  const bool same = now == job->content || SPILLWAY_MUTANT(kTrustOldCopy);
  {
    const TableLock lock(core_->table);
    if (job->cancelled) return true;  // the hashed bytes may have been in use again already; the copy is kept
    if (same) {
      job->block->copies.backoff.RecordUnchanged();
    } else {
      job->block->copies.backoff.RecordUseless();
      job->keeps = job->KeepsChangedLocked(lock);
    }
  }
  if (same) {
    job->clean = job->verified = true;
    job->phase = EvictJob::Phase::kCommit;
    return true;
  }
  ++core_->counters.hash_mismatches;
  ForgetCopy(job);
  job->content = now;
  job->content_known = true;
  // The next poll begins the copy again when there is no capacity now.
  job->phase = ReserveHomes(job) ? EvictJob::Phase::kCopy : EvictJob::Phase::kWaitForUses;
  return true;
}

// The bytes of the copy are no longer those of the block.
void CopyOut::ForgetCopy(EvictJob* job) {
  job->has_copy = job->content_known = false;
  ReleaseHomes(job);
}

// ---- Copying. The GPU's copy stays valid until the commit point.

bool CopyOut::Copy(EvictJob* job) {
  bool moved = false;
  // An exact job copies only after its hash has ended. An equal hash after the copy then shows that no kernel
  // has written the block during it.
  const bool first = job->exact && !job->host_enqueued && !SPILLWAY_MUTANT(kCopiedUnhashed);
  if (first && job->hashed != nullptr) {
    job->content_known = HashEnded(job, &job->content);
    if (!job->content_known) return false;
  }
  if (!job->host_enqueued) {
    CopyToHost(job);
    moved = true;
  }
  const size_t staged = job->staged.size() + job->writes_under_way;
  SubmitWrites(job);
  CopyToStaging(job);
  moved |= staged != job->staged.size() + job->writes_under_way;
  if (!job->failure.ok()) return true;
  const bool host_done =
      job->host_copied == nullptr || SPILLWAY_MUTANT(kCommitBeforeCopy) || copies_->Done(job->host_copied);
  if (host_done) EndHostCopies(job);
  const bool disk_done =
      job->next_disk_extent == job->homes.size() && job->staged.empty() && job->writes_under_way == 0;
  if (job->hashed != nullptr) job->content_known = HashEnded(job, &job->content);
  if (host_done && disk_done && job->hashed == nullptr) {
    EndCopy(job);
    moved = true;
  }
  return moved;
}

// Copy and hash are of the same bytes, and good to be kept, only if no launch has taken the block since its
// gate closed: such a launch may have written the block between the two. A launch may take the block after
// this moment, because the copy and its hash no longer change.
void CopyOut::EndCopy(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.copied");
  const TableLock lock(core_->table);
  if (job->cancelled && !SPILLWAY_MUTANT(kCopyWithoutLock)) return;  // Abandon sees that at the next poll
  const bool verified =
      job->content_known && (!job->stays || job->exact);  // a block that stays is compared when it leaves
  job->keeps = job->keeps && job->content_known;
  job->has_copy = job->keeps && !job->exact;
  job->phase = verified ? EvictJob::Phase::kVerify : EvictJob::Phase::kCommit;
}

// ---- Phase 3a: check that the block still is what was copied. No launch has named it. A kernel that reaches
// it by an address that no launch shows may have written it all the same, and have ended before the unmap.
// The good bytes are then those on the GPU.
bool CopyOut::Verify(EvictJob* job) {
  if (job->hashed == nullptr) {
    SPILLWAY_DELAY_POINT("evictor.verifying");
    const absl::Status begun = BeginHash(job);
    if (WaitsForPlace(begun, job)) return false;
    if (!begun.ok()) job->phase = EvictJob::Phase::kCommit;  // no hash now: goes on without verification
    return true;
  }
  ContentHash now;
  if (!HashEnded(job, &now)) return false;
  SPILLWAY_DELAY_POINT("evictor.verified");
  ++core_->counters.verified_evictions;
  if (now != job->content) {
    KeepOnGpu(job);
    return true;
  }
  const TableLock lock(core_->table);
  job->block->copies.backoff.RecordVerified();
  job->verified = true;
  job->has_copy = job->keeps;
  job->phase = EvictJob::Phase::kCommit;
  return true;
}

void CopyOut::KeepOnGpu(EvictJob* job) {
  std::string which;
  {
    const TableLock lock(core_->table);
    if (job->cancelled) return;  // a launch has taken the block, and may have written it
    Block* const block = job->block;
    which = absl::StrFormat("a block of %d bytes at %#x on GPU %d", block->allocation.requested_bytes,
                            block->address, core_->options.device);
    job->has_copy = job->content_known = false;
    core_->table.CancelEvictionLocked(lock, block);
    if (job->exact) {  // the block may leave the next time, and nothing is lost
      ++core_->counters.unseen_writes;
      return;
    }
    block->copies.written_unseen = true;
    core_->table.AddPinLocked(lock, block, PinReason::kUnseenWrite, 0);
  }
  if (core_->counters.unseen_writes++ < kMaxLines) {
    os::Log(os::LogLevel::kWarn,
            "a kernel wrote " + which +
                " that was on its way off the GPU, and no launch had named it. The block "
                "stays on the GPU. SPILLWAY_AUDIT=1 finds such kernels");
  }
}

void CopyOut::CopyToHost(EvictJob* job) {
  job->host_enqueued = true;
  job->copy_began = os::Clock::System()->NowNanos();
  uint64_t bytes = 0;
  ForEachHostRun(job->homes, job->homes.size(), core_->chunk_bytes, [&](size_t first, size_t count) {
    if (!job->failure.ok()) return;
    const uint32_t run_bytes = core_->BytesOfExtents(*job->block, first, count);
    bytes += run_bytes;
    job->failure = copies_->Out(job->homes[first].buffer.data,
                                job->block->address + first * core_->chunk_bytes, run_bytes);
  });
  if (bytes == 0) return;
  absl::StatusOr<CUevent> mark = copies_->MarkOut();
  if (mark.ok()) {
    job->host_copied = *mark;
    core_->link.Begin(LinkDirection::kOut, os::Clock::System()->NowNanos());
    job->host_bytes = bytes;
  } else {
    job->failure = mark.status();
  }
}

// Ends the measurement for the rate of the copy queue.
void CopyOut::EndHostCopies(EvictJob* job) {
  if (job->host_bytes > 0)
    core_->link.End(LinkDirection::kOut, job->host_bytes, os::Clock::System()->NowNanos());
  job->host_bytes = 0;
}

void CopyOut::CopyToStaging(EvictJob* job) {
  while (job->next_disk_extent < job->homes.size() && job->failure.ok()) {
    const size_t extent = job->next_disk_extent;
    if (!job->homes[extent].on_disk()) {
      ++job->next_disk_extent;
      continue;
    }
    std::vector<PinnedBuffer> buffer;
    if (core_->parts.host->Take(HostUse::kEvictStaging, 1, &buffer) == 0)
      return;  // a write under way frees one
    job->failure = copies_->Out(buffer[0].data, job->block->address + extent * core_->chunk_bytes,
                                core_->BytesOfExtent(*job->block, extent));
    absl::StatusOr<CUevent> mark = copies_->MarkOut();
    if (!mark.ok()) job->failure = mark.status();
    job->staged.push_back({extent, buffer[0], mark.ok() ? *mark : nullptr});
    ++job->next_disk_extent;
  }
}

void CopyOut::SubmitWrites(EvictJob* job) {
  std::erase_if(job->staged, [&](EvictJob::StagedExtent& staged) {
    if (staged.copied != nullptr) {
      if (!SPILLWAY_MUTANT(kStagingNotAwaited) && !copies_->Done(staged.copied)) return false;
      core_->clock.GiveEvent(staged.copied);
    }
    if (!job->failure.ok()) {
      core_->parts.host->Give(HostUse::kEvictStaging, staged.buffer);
      return true;
    }
    ++job->writes_under_way;
    const size_t extent = staged.extent;
    const PinnedBuffer buffer = staged.buffer;
    const uint32_t bytes = core_->BytesOfExtent(*job->block, extent);
    core_->copy_queue(CopyQueue::kDiskOut).Begin(os::Clock::System()->NowNanos());
    core_->parts.disk->Write(job->homes[extent].slot, buffer.data, bytes,
                             [this, job, extent, buffer, bytes](absl::Status status) {
                               const int64_t now = os::Clock::System()->NowNanos();
                               core_->copy_queue(CopyQueue::kDiskOut).End(status.ok() ? bytes : 0, now);
                               {
                                 os::MutexLock lock(&results_mu_);
                                 results_.push_back({job, extent, buffer, std::move(status)});
                               }
                               wake_();
                             });
    return true;
  });
}

bool CopyOut::CollectWrites() {
  std::vector<WriteResult> results;
  {
    os::MutexLock lock(&results_mu_);
    results.swap(results_);
  }
  for (WriteResult& result : results) {
    --result.job->writes_under_way;
    core_->parts.host->Give(HostUse::kEvictStaging, result.buffer);
    if (!result.status.ok() && result.job->failure.ok()) {
      os::Log(os::LogLevel::kWarn, "a block stays on the GPU: " + std::string(result.status.message()));
      const bool full = absl::IsResourceExhausted(result.status);  // else it may work at the next try
      result.job->failure = full ? result.status : absl::UnavailableError(result.status.message());
    }
  }
  return !results.empty();
}

// ---- The end.

bool CopyOut::Ended(EvictJob* job) {
  SubmitWrites(job);  // gives staging back as copies end
  if (!job->staged.empty()) return false;
  if (job->host_copied != nullptr) {
    if (!copies_->Done(job->host_copied)) return false;
    EndHostCopies(job);
    core_->clock.GiveEvent(job->host_copied);
    job->host_copied = nullptr;
  }
  ContentHash unwanted;
  return job->hashed == nullptr || HashEnded(job, &unwanted);
}

void CopyOut::CountSpilled(const EvictJob& job) {
  uint64_t host_bytes = 0;
  uint64_t disk_bytes = 0;
  for (size_t i = 0; i < job.homes.size(); ++i)
    (job.homes[i].on_disk() ? disk_bytes : host_bytes) += core_->BytesOfExtent(*job.block, i);
  core_->counters.host_spilled_bytes += host_bytes;
  core_->counters.disk_spilled_bytes += disk_bytes;
  const int64_t now = os::Clock::System()->NowNanos();
  core_->ReportMove({MoveKind::kGpuToHost, job.block->id, host_bytes, job.copy_began, now});
  core_->ReportMove({MoveKind::kGpuToDisk, job.block->id, disk_bytes, job.copy_began, now});
}

void CopyOut::ReleaseHomes(EvictJob* job) {
  const TableLock lock(core_->table);
  clean_->Release(lock, &job->homes);
}

}  // namespace spillway::allocator
