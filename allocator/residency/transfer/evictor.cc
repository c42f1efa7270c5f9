#include "allocator/residency/transfer/evictor.h"

#include <algorithm>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/state/launch_log.h"
#include "allocator/residency/transfer/mapping.h"
#include "io/os/check.h"
#include "io/os/clock.h"

namespace spillway::allocator {
namespace {

// Delay between a failed eviction of a block and the next: 10 ms at first, at most 10 s.
constexpr int64_t kFirstPauseNanos = 10'000'000;
constexpr uint8_t kMaxDoublings = 10;
constexpr int64_t kPauseAfterDrive = 200'000'000;  // ns

}  // namespace

Evictor::Evictor(Core* core, const Parts& parts, std::function<void()> wake)
    : core_(core),
      charges_(parts.charges),
      addresses_(parts.addresses),
      clean_(parts.clean),
      reach_(parts.reach),
      soft_(parts.soft),
      copy_out_(core, parts.clean, parts.hash, parts.charges->capacity(), parts.copies, std::move(wake)) {}

Evictor::~Evictor() = default;

// ---- Phase 1: close the gate.

void Evictor::StartLocked(const TableLock& lock, const std::vector<Block*>& victims, policy::PlanTier tier) {
  lock.Covers(core_->table);
  for (Block* block : victims) StartJobLocked(lock, block, tier, /*stays=*/false);
}

bool Evictor::CopyOutLocked(const TableLock& lock, Block* block, policy::PlanTier tier) {
  lock.Covers(core_->table);
  if (!copy_out_.hashes() || block->state != BlockState::kResident || !block->used_since_hand_out() ||
      !block->memory.reached.empty())
    return false;
  StartJobLocked(lock, block, tier, /*stays=*/true);
  return true;
}

void Evictor::StartJobLocked(const TableLock& lock, Block* block, policy::PlanTier tier, bool stays) {
  SPILLWAY_CHECK(block->eviction.job == nullptr && block->pins == 0 && !block->memory.mapping);
  auto job = std::make_unique<EvictJob>();
  job->block = block;
  job->began = os::Clock::System()->NowNanos();
  job->generation = block->allocation.generation;
  job->tier = tier;
  job->stays = stays;
  job->decommit = block->state == BlockState::kCached || !block->used_since_hand_out();
  block->eviction.job = job.get();
  if (SPILLWAY_MUTANT(kForgetUsesAtClose)) block->ForgetUses();
  if (job->decommit) {
    if (!SPILLWAY_MUTANT(kDecommitGateOpen)) core_->table.CloseGateLocked(lock, block);
  } else {
    copy_out_.TakeCopyLocked(lock, job.get());
    core_->table.MoveLocked(lock, block, BlockState::kEvicting);
  }
  if (!stays) chunks_coming_ += block->device_chunks();
  started_.push_back(std::move(job));
}

uint64_t Evictor::ChunksStalledLocked(const TableLock& lock, int64_t began_before) const {
  lock.Covers(core_->table);
  uint64_t chunks = 0;
  for (const auto& job : jobs_) {
    const bool waits = job->phase == EvictJob::Phase::kWaitForUses && job->block != nullptr;
    if (waits && !job->stays && job->began < began_before) chunks += job->block->device_chunks();
  }
  return chunks;
}

bool Evictor::MayFreeLocked(const TableLock& lock) const {
  lock.Covers(core_->table);
  const auto may_free = [](const std::unique_ptr<EvictJob>& job) {
    return job->block != nullptr && job->block->eviction.failures == 0;
  };
  return std::ranges::any_of(jobs_, may_free) || std::ranges::any_of(started_, may_free);
}

bool Evictor::Poll() {
  bool progress = copy_out_.CollectWrites();
  progress |= copy_out_.GiveUpAskedCopies();
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
  const TableLock lock(core_->table);
  if (started_.empty()) return false;
  for (auto& job : started_) jobs_.push_back(std::move(job));
  started_.clear();
  return true;
}

// Moves one job on through its phases. A launch may take the job back at any time before the commit point.
// The look under the lock at the beginning saves work that would be in vain; Commit and PublishCopy look
// again under the lock, and that look decides.
bool Evictor::Advance(EvictJob* job) {
  const EvictJob::Phase before = job->phase;
  bool cancelled;
  bool may_move;
  {
    const TableLock lock(core_->table);
    cancelled = job->cancelled;
    may_move = MayMoveLocked(lock, job);
  }
  SPILLWAY_DELAY_POINT("evictor.looked");
  if (cancelled || !job->failure.ok()) {
    const bool had_block = job->block != nullptr;
    Abandon(job);
    return job->phase != before || had_block != (job->block != nullptr);
  }
  if (may_move && job->phase == EvictJob::Phase::kWaitForUses && UsesCompleted(job)) {
    if (job->decommit) {
      job->phase = EvictJob::Phase::kCommit;
    } else {
      job->exact = core_->standstill.on() && copy_out_.hashes();
      if (job->has_copy && !AloneIfExact(job)) return false;
      job->failure = RemapForCopy(core_, job->block);
      if (job->failure.ok()) copy_out_.Begin(job);  // until the job ends, no audited launch unmaps the block
    }
  }
  bool moved = false;
  if (job->phase == EvictJob::Phase::kCompare) {
    moved = copy_out_.Compare(job);
    const bool over = job->phase == EvictJob::Phase::kCopy || job->phase == EvictJob::Phase::kWaitForUses;
    if (over) core_->standstill.Leave(&job->still);  // it has changed, and is copied while launches run
  }
  if (job->phase == EvictJob::Phase::kCopy) moved = copy_out_.Copy(job);
  if (job->phase == EvictJob::Phase::kVerify && AloneIfExact(job)) moved |= copy_out_.Verify(job);
  if (job->phase == EvictJob::Phase::kCommit && (job->stays || AloneIfExact(job)))
    job->stays ? PublishCopy(job) : Commit(job);
  return moved || job->phase != before;
}

// Whether no kernel runs, if that matters for the job. It matters when the job finds out whether the block
// still is what was copied, and when it exchanges a mapping.
bool Evictor::AloneIfExact(EvictJob* job) {
  return !job->exact || SPILLWAY_MUTANT(kExchangedRunning) || core_->standstill.Join(&job->still);
}

// Nothing is mapped or unmapped while an audited launch runs. Once a job may do so, such launches wait for
// it.
bool Evictor::MayMoveLocked(const TableLock& lock, EvictJob* job) {
  if (!job->moving && !suspended_) job->moving = true;
  return job->moving;
}

// ---- Phase 2: wait until no thread inside a section can still launch on the block, and until its last use
// is over.

void Evictor::AfterGatesClosed() {
  SPILLWAY_DELAY_POINT("evictor.before_section_wait");
  core_->read_sections.WaitForAll(core_->waits);
  const TableLock lock(core_->table);
  for (const auto& job : jobs_) {
    if (job->phase != EvictJob::Phase::kStarted) continue;
    job->uses = UncompletedUses(core_->clock, job->block);
    // A launch that was inside may have used a block that was to be decommitted as unused. The bytes of such
    // a block count, so it is evicted instead.
    if (job->decommit && !job->cancelled && job->block->state == BlockState::kResident &&
        job->block->used_since_hand_out() && !SPILLWAY_MUTANT(kDecommitUsed)) {
      job->decommit = false;
      core_->table.MoveLocked(lock, job->block, BlockState::kEvicting);
    }
    job->phase = EvictJob::Phase::kWaitForUses;
  }
}

bool Evictor::UsesCompleted(EvictJob* job) {
  std::erase_if(job->uses, [this, job](const TimelineValue& value) {
    if (core_->clock.Completed(value)) return true;
    // A stream on which nothing can be recorded now (capture, another thread's default stream) is tried again
    // later. Any other refusal by the driver is this eviction's failure.
    const absl::Status covered = core_->clock.Cover(value);
    if (!covered.ok() && !absl::IsUnavailable(covered)) job->failure = covered;
    return false;
  });
  return job->uses.empty() || SPILLWAY_MUTANT(kSkipUses);
}

// ---- Phase 3 is CopyOut's.

// ---- Phase 4: the commit point. The block is off the GPU from here on.

void Evictor::Commit(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.before_commit");
  Block* const block = job->block;
  {
    const TableLock lock(core_->table);
    if (job->cancelled && !SPILLWAY_MUTANT(kCommitWithoutCheck))
      return;  // Abandon sees that at the next poll
    job->committed = true;
    block->memory.mapping = true;
    block->ForgetUses();
    if (job->decommit && block->state == BlockState::kResident)
      core_->table.MoveLocked(lock, block, BlockState::kEmpty);
    job->soft = job->exact && job->verified && job->AllInHost() && !block->allocation.freed;
  }
  SPILLWAY_DELAY_POINT("evictor.committed");
  // No other thread changes `unmapped` while the block is being unmapped.
  const absl::Status status = block->memory.unmapped ? absl::OkStatus() : UnmapBlock(core_, *block);
  if (!status.ok()) return;  // the device's error from now on; the block stays as it is
  job->soft = job->soft && soft_->Map(*block, job->homes);
  {
    const TableLock lock(core_->table);
    FinishLocked(lock, job);
  }
  core_->standstill.Leave(&job->still);
}

// ---- Phase 5: publish, and give the chunks back.

void Evictor::FinishLocked(const TableLock& lock, EvictJob* job) {
  Block* const block = job->block;
  if (!job->clean) {
    copy_out_.CountSpilled(*job);
  } else {
    ++core_->counters.clean_drops;
    core_->counters.clean_drop_bytes += Core::BytesOfCopy(*block);
  }
  ++core_->counters.evictions;
  SPILLWAY_COUNT(kChunks,
                 static_cast<int>(job->decommit ? ChunkSource::kDecommitted : ChunkSource::kEvicted));
  charges_->chunks(lock).Give(&block->memory.handles);
  block->memory.mapping = false;
  block->memory.unmapped = false;
  block->eviction.job = nullptr;
  block->eviction.failures = 0;
  chunks_coming_ -= block->device_chunks();
  job->decommit ? reach_->DropLocked(lock, block) : reach_->LeaveLocked(lock, block, &job->homes);
  if (job->host_copied != nullptr) core_->clock.GiveEvent(job->host_copied);
  if (job->decommit) {
    if (block->state == BlockState::kCached) core_->table.MoveLocked(lock, block, BlockState::kFree);
    if (block->allocation.freed) {  // an unused block was freed while it was being unmapped
      core_->table.MoveLocked(lock, block, BlockState::kFree);
      addresses_->FinishFree(lock, block);
    }
  } else if (block->allocation.freed && !job->soft) {
    core_->table.MoveLocked(lock, block, BlockState::kFree);
    addresses_->FinishFree(lock, block);
    clean_->Release(lock, &job->homes);
  } else {
    block->copies.homes = std::move(job->homes);
    block->copies.content = job->content;
    block->copies.content_known = job->content_known;
    block->copies.copy_kept = job->keeps;
    block->eviction.spilled_at = os::Clock::System()->NowNanos();
    block->eviction.clean = job->clean;
    block->memory.soft = job->soft;
    core_->counters.soft_evictions += job->soft ? 1 : 0;
    core_->table.MoveLocked(lock, block, BlockState::kSpilled);
    if (block->allocation.freed) soft_->EndLocked(lock, block);  // freed while it was being mapped
  }
  job->phase = EvictJob::Phase::kDone;
  if (!SPILLWAY_MUTANT(kChunksNotSignalled)) core_->table.changed.NotifyAll();
}

// Phase 4 of a block that stays: it becomes resident again, with a copy.
void Evictor::PublishCopy(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.before_commit");
  Block* const block = job->block;
  const TableLock lock(core_->table);
  if (job->cancelled && !SPILLWAY_MUTANT(kPublishWithoutCheck)) return;  // Abandon sees that at the next poll
  if (!job->clean) copy_out_.CountSpilled(*job);
  ++core_->counters.early_copies;
  block->eviction.job = nullptr;
  core_->table.MoveLocked(lock, block, BlockState::kResident);
  if (job->keeps) {
    clean_->Keep(lock, block, std::move(job->homes), job->content);
  } else {
    clean_->Release(lock, &job->homes);  // there is no valid hash of it
  }
  if (job->host_copied != nullptr) core_->clock.GiveEvent(job->host_copied);
  core_->standstill.Leave(&job->still);
  job->phase = EvictJob::Phase::kDone;
  core_->table.changed.NotifyAll();
}

// ---- A canceled or failed job: let the work under way end, then give everything back. The block's bytes on
// the GPU were valid all the time. The job leaves the block as soon as nothing copies from it; writes end
// without the block.

void Evictor::Abandon(EvictJob* job) {
  core_->standstill.Leave(&job->still);
  if (!job->failure.ok()) {
    const TableLock lock(core_->table);
    if (!job->cancelled && job->block != nullptr) {
      RecordFailureLocked(lock, job->block, job->failure);
      core_->table.CancelEvictionLocked(lock, job->block);
    }
  }
  if (job->failure.ok()) job->failure = absl::CancelledError("the block is wanted");
  if (!copy_out_.Ended(job)) return;
  if (job->block != nullptr) LetGo(job);
  if (job->writes_under_way > 0) return;
  copy_out_.ReleaseHomes(job);
  job->phase = EvictJob::Phase::kDone;
}

// The block is tried again after a delay, which doubles each time. Waiting claims do not count on it until it
// has succeeded, unless a drive has failed: drives come back.
void Evictor::RecordFailureLocked(const TableLock& lock, Block* block, const absl::Status& why) {
  const int64_t now = os::Clock::System()->NowNanos();
  block->eviction.failed_at = now;
  if (absl::IsUnavailable(why)) {
    core_->RecordDriveFailure(now);
    block->eviction.again_at = now + kPauseAfterDrive;
    block->eviction.failures = std::max<uint8_t>(block->eviction.failures, 1);
    ++failures_;
    return;
  }
  block->eviction.again_at = now + (kFirstPauseNanos << block->eviction.failures);
  if (block->eviction.failures < kMaxDoublings) ++block->eviction.failures;
  ++failures_;
  if (first_failure_.ok()) first_failure_ = why;
}

void Evictor::LetGo(EvictJob* job) {
  Block* const block = job->block;
  const TableLock lock(core_->table);
  SPILLWAY_COUNT(kCancelled, static_cast<int>(job->phase));
  ++core_->counters.evictions_cancelled;
  if (!job->stays) chunks_coming_ -= block->device_chunks();
  block->eviction.job = nullptr;
  job->block = nullptr;
  // A block that was freed and handed out again meanwhile has other bytes, in a life of its own.
  const bool same_life = job->generation == block->allocation.generation || SPILLWAY_MUTANT(kKeepOfLastLife);
  const bool keep = (job->has_copy || SPILLWAY_MUTANT(kKeepAnyCopy)) && same_life;
  if (keep && !job->homes.empty() && block->memory.reached.empty() && block->state == BlockState::kResident &&
      block->live()) {
    clean_->Keep(lock, block, std::move(job->homes), job->content);
    job->homes.clear();
  }
  if (block->allocation.freed && block->state == BlockState::kEvicting) {
    core_->table.MoveLocked(lock, block, BlockState::kCached);
    addresses_->FinishFree(lock, block);
  }
  core_->table.changed.NotifyAll();
}

}  // namespace spillway::allocator
