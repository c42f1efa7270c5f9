#include "allocator/residency/evictor.h"

#include <algorithm>
#include <utility>

#include "allocator/residency/hiding.h"
#include "allocator/residency/test_points.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

// Between a failed eviction of a block and the next: 10 ms, and at most 10 s.
constexpr int64_t kFirstPauseNanos = 10'000'000;
constexpr uint8_t kMostDoublings = 10;

}  // namespace

Evictor::Evictor(Core* core, CopyStreams* copies, std::function<void()> wake)
    : core_(core), copies_(copies), wake_(std::move(wake)) {}

Evictor::~Evictor() = default;

// ---- Phase 1: close the gate.

void Evictor::StartLocked(const std::vector<Block*>& victims, policy::PlanTier tier) {
  core_->table.mu.AssertHeld();
  for (Block* block : victims) StartJobLocked(block, tier, /*stays=*/false);
}

void Evictor::StartJobLocked(Block* block, policy::PlanTier tier, bool stays) {
  SPILLWAY_CHECK(block->evict == nullptr && block->pins == 0 && !block->mapping);
  auto job = std::make_unique<EvictJob>();
  job->block = block;
  job->generation = block->generation;
  job->tier = tier;
  job->stays = stays;
  job->strip = block->state == BlockState::kCached || !block->used_since_hand_out();
  block->evict = job.get();
  if (SPILLWAY_MUTANT(kForgetUsesAtClose)) block->ForgetUses();
  if (job->strip) {
    if (!SPILLWAY_MUTANT(kStripGateOpen)) core_->table.CloseGateLocked(block);
  } else {
    TakeCopyLocked(job.get());
    core_->table.MoveLocked(block, BlockState::kEvicting);
  }
  if (!stays) chunks_coming_ += block->chunks;
  started_.push_back(std::move(job));
}

bool Evictor::CancelLocked(Core* core, Block* block) {
  EvictJob* const job = block->evict;
  if (job == nullptr || job->cancelled) return true;
  if (job->committed && !SPILLWAY_MUTANT(kCancelLate)) return false;
  job->cancelled = true;
  if (job->strip) {
    core->table.RestoreGateLocked(block);
  } else if (!block->freed) {
    core->table.MoveLocked(block, BlockState::kResident);
  }
  return true;
}

bool Evictor::HasHope() const {
  core_->table.mu.AssertHeld();
  const auto hopeful = [](const std::unique_ptr<EvictJob>& job) {
    return job->block != nullptr && job->block->failed_evictions == 0;
  };
  return std::ranges::any_of(jobs_, hopeful) || std::ranges::any_of(started_, hopeful);
}

bool Evictor::Step() {
  bool progress = CollectWrites();
  progress |= GiveCopiesToOthers();
  if (TakeStarted()) {
    AfterGatesClosed();
    progress = true;
  }
  for (size_t i = 0; i < jobs_.size(); ++i) progress |= Advance(jobs_[i].get());
  while (!jobs_.empty() && jobs_.front()->phase == EvictJob::Phase::kDone) jobs_.pop_front();
  std::erase_if(jobs_, [](const auto& job) { return job->phase == EvictJob::Phase::kDone; });
  return progress;
}

bool Evictor::TakeStarted() {
  os::MutexLock lock(&core_->table.mu);
  if (started_.empty()) return false;
  for (auto& job : started_) jobs_.push_back(std::move(job));
  started_.clear();
  return true;
}

bool Evictor::Advance(EvictJob* job) {
  const EvictJob::Phase before = job->phase;
  bool cancelled;
  bool may_move;
  {
    os::MutexLock lock(&core_->table.mu);
    cancelled = job->cancelled;
    may_move = MayMoveLocked(job);
  }
  SPILLWAY_DELAY_POINT("evictor.looked");
  if (cancelled || !job->failure.ok()) {
    const bool held = job->block != nullptr;
    Abandon(job);
    return job->phase != before || held != (job->block != nullptr);
  }
  if (may_move && job->phase == EvictJob::Phase::kWaitForUses && UsesCompleted(job)) {
    if (job->strip) {
      job->phase = EvictJob::Phase::kCommit;
    } else {
      BeginCopy(job);
    }
  }
  bool moved = false;
  if (job->phase == EvictJob::Phase::kCompare) moved = Compare(job);
  if (job->phase == EvictJob::Phase::kCopy) moved = Copy(job);
  if (job->phase == EvictJob::Phase::kCommit) job->stays ? PublishCopy(job) : Commit(job);
  return moved || job->phase != before;
}

// Nothing is mapped or unmapped while an audited launch runs; from the time a job may, such launches wait for it.
bool Evictor::MayMoveLocked(EvictJob* job) {
  if (!job->moving && !core_->audited_launch_runs) job->moving = true;
  return job->moving;
}

// ---- Phase 2: wait until nobody inside a gate slot can still launch on the block, and until its last use is over.

void Evictor::AfterGatesClosed() {
  SPILLWAY_DELAY_POINT("evictor.before_slot_wait");
  core_->gates.WaitForAll(core_->waits);
  os::MutexLock lock(&core_->table.mu);
  for (const auto& job : jobs_) {
    if (job->phase != EvictJob::Phase::kStarted) continue;
    job->uses = UncompletedUses(core_->clock, job->block);
    // A launch that was inside may have used a block that was to be stripped as unused: then its bytes count.
    if (job->strip && !job->cancelled && job->block->state == BlockState::kResident &&
        job->block->used_since_hand_out() && !SPILLWAY_MUTANT(kStripUsed)) {
      job->strip = false;
      core_->table.MoveLocked(job->block, BlockState::kEvicting);
    }
    job->phase = EvictJob::Phase::kWaitForUses;
  }
}

bool Evictor::UsesCompleted(EvictJob* job) {
  std::erase_if(job->uses, [this, job](const Stamp& stamp) {
    if (core_->clock.Completed(stamp)) return true;
    // A stream that cannot be recorded on now (capture, another thread's default stream) is asked again later; what the
    // driver refuses otherwise is this eviction's failure.
    const absl::Status covered = core_->clock.Cover(stamp);
    if (!covered.ok() && !absl::IsUnavailable(covered)) job->failure = covered;
    return false;
  });
  return job->uses.empty() || SPILLWAY_MUTANT(kSkipUses);
}

// ---- Phase 3: copy out. The GPU's copy stays valid until the commit point.

bool Evictor::Copy(EvictJob* job) {
  bool moved = false;
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
      job->next_disk_chunk == job->homes.size() && job->staged.empty() && job->writes_under_way == 0;
  if (job->hashed != nullptr) job->content_known = HashEnded(job, &job->content);
  if (host_done && disk_done && job->hashed == nullptr) {
    EndCopy(job);
    moved = true;
  }
  return moved;
}

// Copy and hash are of the same bytes, and good to be kept, only if nobody has taken the block since its gate closed: who
// did may have written it between the two. After this moment one may: what was copied stays what was hashed.
void Evictor::EndCopy(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.copied");
  os::MutexLock lock(&core_->table.mu);
  if (job->cancelled && !SPILLWAY_MUTANT(kCopyWithoutLock)) return;  // Abandon finds it in the next step
  job->holds_copy = job->content_known;
  job->phase = EvictJob::Phase::kCommit;
}

void Evictor::CopyToHost(EvictJob* job) {
  job->host_enqueued = true;
  job->failure = RevealForCopy(core_, job->block);
  uint64_t bytes = 0;
  for (size_t i = 0; i < job->homes.size() && job->failure.ok(); ++i) {
    if (job->homes[i].on_disk) continue;
    bytes += core_->BytesOfChunk(*job->block, i);
    job->failure = copies_->Out(job->homes[i].piece.data, job->block->address + i * core_->chunk_bytes,
                                core_->BytesOfChunk(*job->block, i));
  }
  if (bytes == 0) return;
  absl::StatusOr<CUevent> mark = copies_->MarkOut();
  if (mark.ok()) {
    job->host_copied = *mark;
    core_->lane(Lane::kHostOut).Begin(os::Clock::System()->NowNanos());
    job->host_bytes = bytes;
  } else {
    job->failure = mark.status();
  }
}

// For the lane's rate.
void Evictor::EndHostCopies(EvictJob* job) {
  if (job->host_bytes > 0) core_->lane(Lane::kHostOut).End(job->host_bytes, os::Clock::System()->NowNanos());
  job->host_bytes = 0;
}

void Evictor::CopyToStaging(EvictJob* job) {
  while (job->next_disk_chunk < job->homes.size() && job->failure.ok()) {
    const size_t chunk = job->next_disk_chunk;
    if (!job->homes[chunk].on_disk) {
      ++job->next_disk_chunk;
      continue;
    }
    std::vector<HostPiece> piece;
    if (core_->parts.host->Take(HostUse::kEvictStaging, 1, &piece) == 0)
      return;  // a write under way frees one
    job->failure = copies_->Out(piece[0].data, job->block->address + chunk * core_->chunk_bytes,
                                core_->BytesOfChunk(*job->block, chunk));
    absl::StatusOr<CUevent> mark = copies_->MarkOut();
    if (!mark.ok()) job->failure = mark.status();
    job->staged.push_back({chunk, piece[0], mark.ok() ? *mark : nullptr});
    ++job->next_disk_chunk;
  }
}

void Evictor::SubmitWrites(EvictJob* job) {
  std::erase_if(job->staged, [&](EvictJob::StagedChunk& staged) {
    if (staged.copied != nullptr) {
      if (!SPILLWAY_MUTANT(kStagingNotAwaited) && !copies_->Done(staged.copied)) return false;
      core_->clock.GiveEvent(staged.copied);
    }
    if (!job->failure.ok()) {
      core_->parts.host->Give(HostUse::kEvictStaging, staged.piece);
      return true;
    }
    ++job->writes_under_way;
    const size_t chunk = staged.chunk;
    const HostPiece piece = staged.piece;
    const uint32_t bytes = core_->BytesOfChunk(*job->block, chunk);
    core_->lane(Lane::kDiskOut).Begin(os::Clock::System()->NowNanos());
    core_->parts.disk->Write(job->homes[chunk].slot, piece.data, bytes,
                             [this, job, chunk, piece, bytes](absl::Status status) {
                               const int64_t now = os::Clock::System()->NowNanos();
                               core_->lane(Lane::kDiskOut).End(status.ok() ? bytes : 0, now);
                               {
                                 os::MutexLock lock(&results_mu_);
                                 results_.push_back({job, chunk, piece, std::move(status)});
                               }
                               wake_();
                             });
    return true;
  });
}

bool Evictor::CollectWrites() {
  std::vector<WriteResult> results;
  {
    os::MutexLock lock(&results_mu_);
    results.swap(results_);
  }
  for (WriteResult& result : results) {
    --result.job->writes_under_way;
    core_->parts.host->Give(HostUse::kEvictStaging, result.piece);
    if (!result.status.ok() && result.job->failure.ok()) {
      os::Log(os::LogLevel::kWarn, "a block stays on the GPU: " + std::string(result.status.message()));
      result.job->failure = result.status;
    }
  }
  return !results.empty();
}

// ---- Phase 4: the commit point. From here on the block is off the GPU.

void Evictor::Commit(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.before_commit");
  Block* const block = job->block;
  {
    os::MutexLock lock(&core_->table.mu);
    if (job->cancelled && !SPILLWAY_MUTANT(kCommitWithoutLook)) return;  // Abandon finds it in the next step
    job->committed = true;
    block->mapping = true;
    block->ForgetUses();
    if (job->strip && block->state == BlockState::kResident)
      core_->table.MoveLocked(block, BlockState::kEmpty);
  }
  SPILLWAY_DELAY_POINT("evictor.committed");
  // Nobody else changes `hidden` while the block is being unmapped.
  const absl::Status status = block->hidden ? absl::OkStatus() : UnmapBlock(core_, *block);
  if (!status.ok()) return;  // the device's error from now on; the block stays as it is
  os::MutexLock lock(&core_->table.mu);
  FinishLocked(job);
}

// ---- Phase 5: publish, and give the chunks to whoever waits.

void Evictor::CountSpilledLocked(const EvictJob& job) {
  for (size_t i = 0; i < job.homes.size(); ++i) {
    Counters& counters = core_->counters;
    (job.homes[i].on_disk ? counters.disk_spilled_bytes : counters.host_spilled_bytes) +=
        core_->BytesOfChunk(*job.block, i);
  }
}

void Evictor::FinishLocked(EvictJob* job) {
  Block* const block = job->block;
  if (!job->clean) {
    CountSpilledLocked(*job);
  } else {
    ++core_->counters.clean_drops;
    core_->counters.clean_drop_bytes += Core::BytesOfCopy(*block);
  }
  ++core_->counters.evictions;
  ++core_->chunk_paths[static_cast<int>(job->strip ? ChunkPath::kStripped : ChunkPath::kEvicted)];
  core_->chunks.Give(&block->handles);
  block->mapping = false;
  block->hidden = false;
  block->evict = nullptr;
  block->failed_evictions = 0;
  chunks_coming_ -= block->chunks;
  if (job->host_copied != nullptr) core_->clock.GiveEvent(job->host_copied);
  if (job->strip) {
    if (block->state == BlockState::kCached) core_->table.MoveLocked(block, BlockState::kFree);
    if (block->freed) {  // an unused block freed while it was being unmapped
      core_->table.MoveLocked(block, BlockState::kFree);
      core_->FinishFreeLocked(block);
    }
  } else if (block->freed) {
    core_->table.MoveLocked(block, BlockState::kFree);
    core_->FinishFreeLocked(block);
    core_->clean.Release(&job->homes);
  } else {
    block->homes = std::move(job->homes);
    block->content = job->content;
    block->content_known = job->content_known;
    core_->table.MoveLocked(block, BlockState::kSpilled);
  }
  job->phase = EvictJob::Phase::kDone;
  if (!SPILLWAY_MUTANT(kChunksNotTold)) core_->table.changed.NotifyAll();
}

// ---- A cancelled or failed job: let what is under way drain, then give everything back. The GPU's copy was valid
// all the time. The block is let go as soon as nothing copies from it; writes end without it.

void Evictor::Abandon(EvictJob* job) {
  if (!job->failure.ok()) {
    os::MutexLock lock(&core_->table.mu);
    if (!job->cancelled && job->block != nullptr) {
      NoteFailureLocked(job->block, job->failure);
      CancelLocked(core_, job->block);
    }
  }
  if (job->failure.ok()) job->failure = absl::CancelledError("the block is wanted");
  ContentHash unwanted;
  SubmitWrites(job);  // gives staging back as copies end
  if (!job->staged.empty()) return;
  if (job->host_copied != nullptr) {
    if (!copies_->Done(job->host_copied)) return;
    EndHostCopies(job);
    core_->clock.GiveEvent(job->host_copied);
    job->host_copied = nullptr;
  }
  if (job->hashed != nullptr && !HashEnded(job, &unwanted)) return;
  if (job->block != nullptr) LetGo(job);
  if (job->writes_under_way > 0) return;
  ReleaseHomes(&job->homes);
  job->phase = EvictJob::Phase::kDone;
}

// It is tried again after a pause, twice as long each time, and is no hope for those who wait until it has succeeded.
void Evictor::NoteFailureLocked(Block* block, const absl::Status& why) {
  block->evict_again_at = os::Clock::System()->NowNanos() + (kFirstPauseNanos << block->failed_evictions);
  if (block->failed_evictions < kMostDoublings) ++block->failed_evictions;
  ++failures_;
  if (first_failure_.ok()) first_failure_ = why;
}

void Evictor::LetGo(EvictJob* job) {
  Block* const block = job->block;
  os::MutexLock lock(&core_->table.mu);
  ++cancelled_in_phase[static_cast<int>(job->phase)];
  ++core_->counters.evictions_cancelled;
  if (!job->stays) chunks_coming_ -= block->chunks;
  block->evict = nullptr;
  job->block = nullptr;
  // Freed and handed out again meanwhile, it has other bytes: a life of its own.
  const bool same_life = job->generation == block->generation || SPILLWAY_MUTANT(kKeepOfLastLife);
  const bool keep = (job->holds_copy || SPILLWAY_MUTANT(kKeepAnyCopy)) && same_life;
  if (keep && !job->homes.empty() && block->state == BlockState::kResident && block->live()) {
    core_->clean.Keep(block, std::move(job->homes), job->content);
    job->homes.clear();
  }
  if (block->freed && block->state == BlockState::kEvicting) {
    core_->table.MoveLocked(block, BlockState::kCached);
    core_->FinishFreeLocked(block);
  }
  core_->table.changed.NotifyAll();
}

void Evictor::ReleaseHomes(std::vector<ChunkHome>* homes) {
  os::MutexLock lock(&core_->table.mu);
  core_->clean.Release(homes);
}

}  // namespace spillway::allocator
