// The part of Evictor that knows of copies: what is already elsewhere, whether it is still the block's content, and
// room for what is not.

#include <utility>

#include "allocator/residency/evictor.h"
#include "allocator/residency/hiding.h"
#include "allocator/residency/test_points.h"

namespace spillway::allocator {

bool Evictor::CopyOutLocked(Block* block, policy::PlanTier tier) {
  core_->table.mu.AssertHeld();
  if (core_->hash.Get() == nullptr || block->state != BlockState::kResident || !block->used_since_hand_out())
    return false;
  StartJobLocked(block, tier, /*stays=*/true);
  return true;
}

void Evictor::TakeCopyLocked(EvictJob* job) {
  job->holds_copy = core_->clean.Take(job->block, &job->homes, &job->content);
  job->content_known = job->holds_copy;
}

// ---- After the last use.

// The bytes are final: with a copy from before, whether they are still the same; else room for a new one.
void Evictor::BeginCopy(EvictJob* job) {
  if (job->holds_copy) {
    if (BeginHash(job)) {
      job->phase = EvictJob::Phase::kCompare;
      return;
    }
    ForgetCopy(job);  // it cannot be told: changed
  }
  if (!ReserveHomes(job)) return;
  job->phase = EvictJob::Phase::kCopy;
  bool wanted = job->stays;
  {
    os::MutexLock lock(&core_->table.mu);
    wanted = job->block->habit.WantsHash() || wanted;
  }
  if (wanted) BeginHash(job);  // beside the copy: both only read
}

bool Evictor::BeginHash(EvictJob* job) {
  core_->hash.Begin();
  DeviceHash* const hash = core_->hash.Get();
  if (hash == nullptr || !RevealForCopy(core_, job->block).ok()) return false;
  absl::StatusOr<DeviceHash::Request> request =
      hash->Enqueue(hash->stream(), job->block->address, core_->BytesOfCopy(*job->block));
  if (!request.ok()) return false;
  absl::StatusOr<CUevent> event = core_->clock.TakeEvent();
  if (event.ok() && core_->parts.driver->cuEventRecord(*event, hash->stream()) == CUDA_SUCCESS) {
    job->hash = *request;
    job->hashed = *event;
    return true;
  }
  if (event.ok()) core_->clock.GiveEvent(*event);
  copies_->AwaitEnd(hash->stream()).IgnoreError();
  hash->Drop(&*request);
  return false;
}

bool Evictor::HashEnded(EvictJob* job, ContentHash* result) {
  if (!copies_->Done(job->hashed)) return false;
  *result = core_->hash.Get()->Take(&job->hash);
  core_->clock.GiveEvent(job->hashed);
  job->hashed = nullptr;
  return true;
}

// Phase 2a: the copy from before is good, or is given up.
bool Evictor::Compare(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.comparing");
  ContentHash now;
  if (!HashEnded(job, &now)) return false;
  SPILLWAY_DELAY_POINT("evictor.compared");
  const bool same = now == job->content || SPILLWAY_MUTANT(kTrustOldCopy);
  {
    os::MutexLock lock(&core_->table.mu);
    if (job->cancelled) return true;  // what was hashed may have been in use again already; the copy is kept
    if (same) {
      job->block->habit.NoteUnchanged();
    } else {
      job->block->habit.NoteUseless();
    }
  }
  if (same) {
    job->clean = true;
    job->phase = EvictJob::Phase::kCommit;
    return true;
  }
  ++core_->counters.changed_copies;
  ForgetCopy(job);
  job->content = now;
  job->content_known = job->stays;  // one that changes is not kept, unless a plan wants it
  // Without room now, the next step begins the copy anew.
  job->phase = ReserveHomes(job) ? EvictJob::Phase::kCopy : EvictJob::Phase::kWaitForUses;
  return true;
}

// The bytes at the copy are none of the block's any more.
void Evictor::ForgetCopy(EvictJob* job) {
  job->holds_copy = job->content_known = false;
  ReleaseHomes(&job->homes);
}

// Phase 4 of a block that stays: it is resident, with a copy.
void Evictor::PublishCopy(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.before_commit");
  Block* const block = job->block;
  os::MutexLock lock(&core_->table.mu);
  if (job->cancelled && !SPILLWAY_MUTANT(kPublishWithoutLook)) return;  // Abandon finds it in the next step
  if (!job->clean) CountSpilledLocked(*job);
  ++core_->counters.early_copies;
  block->evict = nullptr;
  core_->table.MoveLocked(block, BlockState::kResident);
  if (job->content_known) {
    core_->clean.Keep(block, std::move(job->homes), job->content);
  } else {
    core_->clean.Release(&job->homes);  // the hash came to nothing
  }
  if (job->host_copied != nullptr) core_->clock.GiveEvent(job->host_copied);
  job->phase = EvictJob::Phase::kDone;
  core_->table.changed.NotifyAll();
}

// ---- Room for the bytes.

// False without a failure: not now, room is being made by threads whose work this is; asked again in the next step.
bool Evictor::ReserveHomes(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.before_reserve");
  const size_t chunks = job->block->chunks;
  absl::Status slots;
  if (job->tier == policy::PlanTier::kDisk && core_->parts.disk != nullptr) {
    slots = TakeSlots(chunks, job);
    if (slots.ok()) return true;
  }
  bool soon = absl::IsUnavailable(slots);
  TakePieces(chunks, job);
  const size_t rest = chunks - job->homes.size();
  if (rest == 0) return true;
  // What the host tier is about to get is not worth a disk's transfer.
  if (core_->parts.host != nullptr && core_->parts.host->storage_growing()) {
    soon = true;
  } else {
    slots = TakeSlots(rest, job);
    if (slots.ok()) return true;
    soon = soon || absl::IsUnavailable(slots);
  }
  if (soon) {
    ReleaseHomes(&job->homes);  // another eviction may do with them
    return false;
  }
  // Copies that other devices keep may be in the way; tried again soon.
  copies_asked_ = core_->room->AskForCopies();
  job->failure =
      absl::ResourceExhaustedError("nothing more can be moved off the GPU: " + std::string(slots.message()));
  return false;
}

void Evictor::TakePieces(size_t count, EvictJob* job) {
  HostPool* const host = core_->parts.host;
  if (host == nullptr) return;
  std::vector<HostPiece> pieces;
  if (host->Take(HostUse::kStorage, count, &pieces) < count && !host->storage_growing()) {
    bool more;
    {
      os::MutexLock lock(&core_->table.mu);
      more = core_->clean.host_pieces() > 0;
      core_->clean.ReclaimHost(count - pieces.size());
    }
    if (more) host->Take(HostUse::kStorage, count - pieces.size(), &pieces);
  }
  for (const HostPiece& piece : pieces) job->homes.push_back({piece, {}, false});
}

absl::Status Evictor::TakeSlots(size_t count, EvictJob* job) {
  io::SpillStore* const disk = core_->parts.disk;
  if (disk == nullptr) return absl::ResourceExhaustedError("the host tier is full and there is no disk tier");
  absl::StatusOr<std::vector<io::SlotId>> slots = disk->TakeSlots(count);
  if (!slots.ok() && !absl::IsUnavailable(slots.status())) {
    bool more;
    {
      os::MutexLock lock(&core_->table.mu);
      more = core_->clean.disk_slots() > 0;
      core_->clean.ReclaimDisk(count);
    }
    if (more) slots = disk->TakeSlots(count);
  }
  if (!slots.ok()) return slots.status();
  for (const io::SlotId& slot : *slots) job->homes.push_back({{}, slot, true});
  return absl::OkStatus();
}

// Another device found no room: copies here are given up.
bool Evictor::GiveCopiesToOthers() {
  const uint64_t asked = core_->room->copies_asked();
  if (asked == copies_asked_) return false;
  copies_asked_ = asked;
  os::MutexLock lock(&core_->table.mu);
  core_->clean.ReclaimAll();
  return true;
}

}  // namespace spillway::allocator
