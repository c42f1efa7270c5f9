#include "allocator/residency/transfer/claim_queue.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/mapping.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

// A wait gets the name of its launch after this time.
constexpr int64_t kNameAfterNanos = 1'000'000'000;

absl::Status PausedMeanwhile() { return absl::AbortedError("a block was paused"); }
absl::Status WantsShare() { return absl::AbortedError("the share of the device is too small"); }

std::string Mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

ClaimQueue::ClaimQueue(Core* core, Charges* charges, Faulter* faulter, Reach* reach, Leave leave,
                       std::function<void()> wake)
    : core_(core),
      charges_(charges),
      faulter_(faulter),
      reach_(reach),
      leave_(std::move(leave)),
      wake_(std::move(wake)) {}

uint8_t ClaimQueue::PausedByLocked(const TableLock& lock, const AccessSet& set) const {
  uint8_t by = 0;
  for (BlockId id : set) {
    const Block& block = core_->table.at(id);
    if (block.live()) by |= block.pause.by;
  }
  return by;
}

absl::Status ClaimQueue::AwaitResume(const AccessSet& set, Name name) const {
  uint8_t by;
  {
    const TableLock lock(core_->table);
    by = PausedByLocked(lock, set);
  }
  if (by == 0) return absl::OkStatus();
  if (core_->stopped.load()) return core_->StopStatus();
  if ((by & static_cast<uint8_t>(PausedBy::kOutside)) != 0 && core_->parts.pause_gate != nullptr)
    return core_->parts.pause_gate->AwaitResume(name, core_->stopped);
  if (IsIdle(by) && core_->parts.share != nullptr) return core_->parts.share->Await(0, name);
  return IllegalState(name() +
                      " names memory that spillway.pause() has paused. To do: call spillway.resume() before");
}

absl::Status ClaimQueue::Claim(const AccessSet& set, Name name, Grant* grant) {
  for (;;) {
    Ticket ticket;
    const absl::Status status = ClaimUnpaused(set, name, &ticket, grant);
    if (!absl::IsAborted(status)) return status;
    SPILLWAY_RETURN_IF_ERROR(ticket.share_bytes > 0 ? core_->parts.share->Await(ticket.share_bytes, name)
                                                    : AwaitResume(set, name));
    if (ticket.share_bytes > 0 && core_->stopped.load()) return core_->StopStatus();
  }
}

absl::Status ClaimQueue::ClaimUnpaused(const AccessSet& set, Name name, Ticket* ticket, Grant* grant) {
  {
    const TableLock lock(core_->table);
    if (PausedByLocked(lock, set) != 0) return PausedMeanwhile();
    const Lack lack = LackOfLocked(lock, set);
    // A claim that only takes evictions back may do so while the queue is empty. Otherwise the first claim in
    // the queue needs those evictions.
    const bool home = lack.reached == 0 || ToComeHomeLocked(lock, set, *ticket).empty();
    const bool waits = lack.chunks > 0 || lack.busy || (lack.leaving && !queue_.empty()) || !home;
    if (!waits) {
      if (core_->stopped.load()) return core_->StopStatus();
      PinLocked(lock, set, grant);
      ++grants_;
      return absl::OkStatus();
    }
  }
  // The events show when the GPU has nothing left to do. They are recorded without the lock, because the
  // driver blocks the recording thread while a stream's queue is full.
  core_->clock.CoverAll();
  TableLock lock(core_->table);
  return ClaimInTurnLocked(&lock, set, name, ticket, grant);
}

absl::Status ClaimQueue::ClaimInTurnLocked(TableLock* lock, const AccessSet& set, Name name, Ticket* ticket,
                                           Grant* grant) {
  RefuseIfTooLargeLocked(*lock, set, ticket);
  if (!ticket->refusal.ok()) return ticket->refusal;
  os::Wait wait(core_->waits, os::WaitKind::kChunks, "");
  bool named = false;
  ticket->number = ++tickets_;
  queue_.push_back(ticket);
  absl::Status status;
  while (status.ok() && !TryGrantLocked(lock, set, ticket, grant)) {
    if (!ticket->refusal.ok()) {
      status = ticket->refusal;
    } else {
      status = AwaitLocked(
          lock, &wait, [&] { return name(); }, &named);
    }
  }
  if (!status.ok()) UnpinLocked(*lock, grant);
  if (status.ok() || !SPILLWAY_MUTANT(kKeepTicket)) std::erase(queue_, ticket);
  if (!SPILLWAY_MUTANT(kNextNotWoken)) core_->table.changed.NotifyAll();
  if (!status.ok()) return status;
  const std::vector<Block*>& lacking = grant->to_fetch.empty() ? grant->to_map : grant->to_fetch;
  const BlockId first = lacking.empty() ? BlockId() : lacking.front()->id;
  core_->CountStall(StallCause::kChunks, first, grant->tag, wait.since());
  ++grants_;
  return status;
}

// The first in the queue takes its pins, and then its chunks, all of them or none. Returns false when it must
// wait.
bool ClaimQueue::TryGrantLocked(TableLock* lock, const AccessSet& set, Ticket* ticket, Grant* grant) {
  if (queue_.front() != ticket) return false;
  if (grant->pinned.empty()) {
    if (PausedByLocked(*lock, set) != 0 && !SPILLWAY_MUTANT(kClaimChecksOnce)) {
      ticket->refusal = PausedMeanwhile();
      return false;
    }
    if (AwaitsHomecomingLocked(*lock, set, ticket)) return false;
    PinLocked(*lock, set, grant);  // may take evictions back
  }
  Lack lack = LackOfLocked(*lock, set);
  const uint64_t brings = lack.chunks;
  const std::vector<Reach::Part> parts = ChooseReachedLocked(*lock, set, *ticket, grant->passes, &lack);
  ticket->parts = parts;
  ticket->reached = lack.reached + brings - lack.chunks;
  ticket->host_wanted = 0;
  std::vector<PinnedBuffer> buffers;
  const bool has_host = parts.empty() || reach_->TakeLocked(*lock, parts, &buffers, &ticket->host_wanted);
  std::vector<ChunkHandle> handles;
  // The lock is released while the driver makes handles for this claim, and the chunks taken are not
  // available any more. `needed` is 0 meanwhile, so that nothing else leaves for this claim.
  ticket->needed = 0;
  if (!lack.busy && has_host && TakeChunksLocked(core_, charges_, lock, lack.claimed, &handles)) {
    DistributeLocked(*lock, parts, &buffers, &handles, grant);
    return true;
  }
  reach_->GiveLocked(*lock, &buffers);
  const bool raised = RefuseIfTooLargeLocked(*lock, set, ticket);
  // The target has risen, and no other thread would report that chunks may be had.
  if (raised && ticket->refusal.ok()) return TryGrantLocked(lock, set, ticket, grant);
  // The lock may have been released, so the missing chunks are counted again after the wait.
  ticket->needed = lack.chunks;
  wake_();
  return false;
}

absl::Status ClaimQueue::AwaitLocked(TableLock* lock, os::Wait* wait, Name name, bool* named) {
  if (!*named && os::Clock::System()->NowNanos() - wait->since() > kNameAfterNanos) {
    *named = true;
    std::string subject = ", " + std::to_string(queue_.size()) + " launches wait, " +
                          std::to_string(grants_) + " are being prepared, " +
                          std::to_string(core_->clock.UncompletedLaunches()) +
                          " are on the GPU (one of them may be waiting for a later call of this thread)";
    if (!queue_.empty())
      subject = ", the first lacks " + Mib(queue_.front()->needed * core_->chunk_bytes) + subject;
    core_->table.mu.Unlock();
    wait->SetSubject(name() + subject);
    core_->table.mu.Lock();
    return absl::OkStatus();  // much may have changed
  }
  return core_->AwaitChangeLocked(lock, *wait);
}

ClaimQueue::Lack ClaimQueue::LackOfLocked(const TableLock& lock, const AccessSet& set) {
  Lack lack;
  for (BlockId id : set) {
    const Block& block = core_->table.at(id);
    if (!block.live()) continue;
    const bool left = block.eviction.job != nullptr && block.eviction.job->committed;
    const bool undone = block.state == BlockState::kFaulting && block.memory.mapping;
    lack.reached += block.memory.reached.size();
    if (left || undone) {
      lack.busy = true;
    } else if (!block.has_chunks()) {
      lack.blocks.push_back(&core_->table.at(id));
      lack.claimed.push_back(block.chunks);
      lack.chunks += block.chunks;
    } else if (block.eviction.job != nullptr && !block.eviction.job->cancelled) {
      lack.leaving = true;
    }
  }
  return lack;
}

void ClaimQueue::PinLocked(const TableLock& lock, const AccessSet& set, Grant* grant) {
  for (BlockId id : set) {
    Block& block = core_->table.at(id);
    if (!block.live()) continue;
    ++block.pins;
    grant->pinned.push_back(&block);
    if (block.eviction.job != nullptr) core_->table.CancelEvictionLocked(lock, &block);
    if (block.state == BlockState::kFaulting && block.fetch.job != nullptr)
      faulter_->DemandLocked(lock, &block);
  }
}

void ClaimQueue::UnpinLocked(const TableLock& lock, Grant* grant) {
  for (Block* block : grant->pinned) {
    SPILLWAY_CHECK(block->pins > 0);
    --block->pins;
  }
  grant->pinned.clear();
}

void ClaimQueue::DistributeLocked(const TableLock& lock, const std::vector<Reach::Part>& parts,
                                  std::vector<PinnedBuffer>* buffers, std::vector<ChunkHandle>* handles,
                                  Grant* grant) {
  for (Block* block : grant->pinned) {
    // The lock was released while handles were made. A block may have been freed or prefetched meanwhile, or
    // may have lost its chunks. In that case there are too few chunks, and WaitLaunchable sends the launch
    // back.
    if (block->state == BlockState::kFaulting && block->fetch.job != nullptr)
      faulter_->DemandLocked(lock, block);
    const bool lacking = block->state == BlockState::kEmpty || block->state == BlockState::kSpilled;
    if (!lacking || block->allocation.freed || block->memory.mapping || block->has_chunks()) continue;
    const auto part = std::ranges::find(parts, block, &Reach::Part::block);
    if (part != parts.end() && !reach_->AssignLocked(lock, *part, buffers)) continue;
    std::vector<ChunkHandle> mine = ChunkPool::Portion(block->device_chunks(), handles);
    if (mine.empty() && block->device_chunks() > 0) {
      reach_->TakeBackLocked(lock, block);
      continue;
    }
    if (block->state == BlockState::kEmpty) {
      block->memory.handles = std::move(mine);
      block->memory.peers = 0;
      block->memory.mapping = true;
      grant->to_map.push_back(block);
    } else {
      faulter_->BeginLocked(lock, block, std::move(mine), /*prefetch=*/false);
      grant->to_fetch.push_back(block);
      ++core_->counters.faults;
    }
  }
  charges_->chunks(lock).Give(handles);
  reach_->GiveLocked(lock, buffers);
}

uint64_t ClaimQueue::ChunksOfLocked(const AccessSet& set) const {
  uint64_t chunks = 0;
  for (BlockId id : set) {
    const Block& block = core_->table.at(id);
    if (block.live()) chunks += block.chunks;
  }
  return chunks;
}

absl::Status ClaimQueue::CheckFitsLocked(const TableLock& lock, const AccessSet& set) {
  const uint64_t chunks = ChunksOfLocked(set);
  const uint64_t target = charges_->chunks(lock).target();
  if (chunks <= target) return absl::OkStatus();
  // If more could be lent, the driver has refused it: the target is all that there is.
  const uint64_t most = charges_->most_chunks(lock);
  const uint64_t on_gpu = most < chunks ? most : target;
  std::string text = "one launch names " + std::to_string(set.size()) + " blocks of together " +
                     Mib(chunks * core_->chunk_bytes) + ", and the budget leaves " +
                     Mib(on_gpu * core_->chunk_bytes) + " for them";
  if (charges_->reachable_bytes(lock) > 0)
    text += "; the rest is more than the " + Mib(charges_->reachable_bytes(lock)) + " of the host tier";
  return absl::ResourceExhaustedError(text + ". A larger budget or smaller tensors make it fit");
}

bool ClaimQueue::RefuseIfTooLargeLocked(const TableLock& lock, const AccessSet& set, Ticket* ticket) {
  bool raised = false;
  absl::Status status = CheckFitsLocked(lock, set);
  if (!status.ok() && charges_->lowered_at(lock) != 0 && !ticket->tried_again) {
    ticket->tried_again = true;
    charges_->RestoreTarget(lock);
    status = CheckFitsLocked(lock, set);
    raised = true;
  }
  if (!status.ok() && charges_->Lend(lock, ChunksOfLocked(set))) {
    status = absl::OkStatus();
    raised = true;
  }
  if (!status.ok()) {
    ticket->share_bytes = charges_->ShareThatFits(lock, ChunksOfLocked(set) * core_->chunk_bytes);
    if (ticket->share_bytes > 0) status = WantsShare();
    if (ticket->share_bytes == 0 && FitsWithReachLocked(lock, set)) status = absl::OkStatus();
  }
  if (ticket->refusal.ok()) ticket->refusal = std::move(status);
  return raised;
}

absl::Status ClaimQueue::WaitLaunchable(const Grant& grant, Name name, std::vector<CUevent>* arrivals) {
  {
    const TableLock lock(core_->table);
    if (AllLaunchableLocked(lock, grant, arrivals)) return absl::OkStatus();
  }
  core_->clock.CoverAll();  // without the lock, as in ClaimUnpaused
  std::optional<os::Wait> wait;
  bool named = false;
  BlockId lacking;
  TableLock lock(core_->table);
  absl::Status status;
  for (size_t i = 0; i < grant.pinned.size() && status.ok();) {
    Block* const block = grant.pinned[i];
    if (core_->stopped.load()) {
      status = core_->StopStatus();
    } else if (IsLaunchableLocked(lock, *block, arrivals)) {
      ++i;
    } else if (!block->has_chunks() && !block->memory.mapping) {
      status = block->fetch.failure.ok() ? absl::AbortedError("a block lost its chunks again")
                                         : block->fetch.failure;
    } else {
      if (!wait) {
        wait.emplace(core_->waits, os::WaitKind::kArrival, "");
        lacking = block->id;
      }
      status = AwaitLocked(
          &lock, &*wait, [&] { return name(); }, &named);
    }
  }
  if (wait) core_->CountStall(StallCause::kArrival, lacking, grant.tag, wait->since());
  return status;
}

bool ClaimQueue::AllLaunchableLocked(const TableLock& lock, const Grant& grant,
                                     std::vector<CUevent>* arrivals) {
  if (core_->stopped.load()) return false;
  return std::ranges::all_of(grant.pinned,
                             [&](const Block* block) { return IsLaunchableLocked(lock, *block, arrivals); });
}

// A block may be launched on when it is mapped, and whole or with an arrival event, which is collected. A
// block that was freed meanwhile also counts: its owner no longer needs it.
bool ClaimQueue::IsLaunchableLocked(const TableLock& lock, const Block& block,
                                    std::vector<CUevent>* arrivals) {
  if (!block.live()) return true;
  if (block.memory.mapping) return false;
  if (block.state == BlockState::kResident) return true;
  if (block.state != BlockState::kFaulting || block.fetch.arrival == nullptr) return false;
  const bool enough = SPILLWAY_MUTANT(kFirstArrivalOnly) && !arrivals->empty();
  if (!enough && std::find(arrivals->begin(), arrivals->end(), block.fetch.arrival) == arrivals->end()) {
    arrivals->push_back(block.fetch.arrival);
  }
  return true;
}

void ClaimQueue::RecordWaiter(const Grant& grant, TimelineValue before) {
  const TableLock lock(core_->table);
  for (Block* block : grant.pinned) {
    FetchJob* const job = block->fetch.job;
    if (job == nullptr || job->waiter.stream != kNoStream) continue;
    job->waiter = before;
    job->waiter_tag = grant.tag;
  }
}

void ClaimQueue::Release(Grant* grant) {
  const TableLock lock(core_->table);
  UnpinLocked(lock, grant);
  --grants_;
  // A claim behind this one may wait for these pins.
  if (!queue_.empty()) {
    core_->table.changed.NotifyAll();
    wake_();
  }
}

uint64_t ClaimQueue::WantedLocked(const TableLock& lock) const {
  lock.Covers(core_->table);
  return queue_.empty() ? 0 : queue_.front()->needed;
}

void ClaimQueue::RefuseHeadLocked(const TableLock& lock, const absl::Status& why) {
  lock.Covers(core_->table);
  if (queue_.empty()) return;
  queue_.front()->refusal = why;
  core_->table.changed.NotifyAll();
}

bool ClaimQueue::SendForShareLocked(const TableLock& lock, uint64_t chunks) {
  lock.Covers(core_->table);
  const uint64_t share = charges_->ShareThatFits(lock, chunks * core_->chunk_bytes);
  if (share == 0 || queue_.empty()) return false;
  queue_.front()->share_bytes = share;
  RefuseHeadLocked(lock, WantsShare());
  return true;
}

}  // namespace spillway::allocator
