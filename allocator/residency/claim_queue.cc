#include "allocator/residency/claim_queue.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "allocator/residency/evictor.h"
#include "allocator/residency/test_points.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

// A wait that has lasted so long says who waits.
constexpr int64_t kNameAfterNanos = 1'000'000'000;

std::string Mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

ClaimQueue::ClaimQueue(Core* core, Faulter* faulter, std::function<void()> wake)
    : core_(core), faulter_(faulter), wake_(std::move(wake)) {}

absl::Status ClaimQueue::Claim(const AccessSet& set, Name name, Grant* grant) {
  os::MutexLock lock(&core_->table.mu);
  const Lack lack = LackOfLocked(set);
  // Who would only have to take evictions back may do so while nobody waits for them; else it is behind them.
  const bool waits = lack.chunks > 0 || lack.busy || (lack.leaving && !queue_.empty());
  if (!waits) {
    if (core_->stopped.load()) return core_->StopStatus();
    PinLocked(set, grant);
    ++grants_;
    return absl::OkStatus();
  }
  return ClaimInTurnLocked(set, name, grant);
}

absl::Status ClaimQueue::ClaimInTurnLocked(const AccessSet& set, Name name, Grant* grant) {
  Ticket ticket;
  RefuseIfTooLargeLocked(set, &ticket);
  if (!ticket.refusal.ok()) return ticket.refusal;
  os::Wait wait(core_->waits, os::WaitKind::kChunks, "");
  bool named = false;
  queue_.push_back(&ticket);
  core_->clock.CoverAll();  // so that it is seen when the GPU has nothing left to do
  absl::Status status;
  while (status.ok() && !TryGrantLocked(set, &ticket, grant)) {
    if (!ticket.refusal.ok()) {
      status = ticket.refusal;
    } else {
      status = AwaitLocked(
          &wait, [&] { return name(); }, &named);
    }
  }
  if (!status.ok()) UnpinLocked(grant);
  if (status.ok() || !SPILLWAY_MUTANT(kKeepTicket)) std::erase(queue_, &ticket);
  if (!SPILLWAY_MUTANT(kNextNotTold)) core_->table.changed.NotifyAll();
  if (!status.ok()) return status;
  const int64_t now = os::Clock::System()->NowNanos();
  core_->counters.stall_room_nanos += now - wait.since();
  core_->counters.lost_room_nanos += core_->LostSince(wait.since(), now);
  ++grants_;
  return status;
}

// The head takes its pins, and then its chunks, all of them or none. False: it must wait.
bool ClaimQueue::TryGrantLocked(const AccessSet& set, Ticket* ticket, Grant* grant) {
  if (queue_.front() != ticket) return false;
  if (grant->pinned.empty()) PinLocked(set, grant);  // may take evictions back
  const Lack lack = LackOfLocked(set);
  std::vector<ChunkHandle> chunks;
  if (!lack.busy && TakeChunksLocked(lack.chunks, &chunks)) {
    DistributeLocked(&chunks, grant);
    return true;
  }
  const bool tried_again = ticket->tried_again;
  RefuseIfTooLargeLocked(set, ticket);
  // The budget is what it was again: nobody else would tell that there is room.
  if (ticket->tried_again != tried_again && ticket->refusal.ok()) return TryGrantLocked(set, ticket, grant);
  // The lock may have been released: what is missing is looked up again after the wait.
  ticket->needed = lack.chunks;
  wake_();
  return false;
}

absl::Status ClaimQueue::AwaitLocked(os::Wait* wait, Name name, bool* named) {
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
  return core_->AwaitChangeLocked(*wait);
}

ClaimQueue::Lack ClaimQueue::LackOfLocked(const AccessSet& set) {
  Lack lack;
  for (BlockId id : set) {
    const Block& block = core_->table.at(id);
    if (!block.live()) continue;
    const bool left = block.evict != nullptr && block.evict->committed;
    const bool undone = block.state == BlockState::kFaulting && block.mapping;
    if (left || undone) {
      lack.busy = true;
    } else if (!block.holds_chunks()) {
      lack.chunks += block.chunks;
    } else if (block.evict != nullptr && !block.evict->cancelled) {
      lack.leaving = true;
    }
  }
  return lack;
}

void ClaimQueue::PinLocked(const AccessSet& set, Grant* grant) {
  for (BlockId id : set) {
    Block& block = core_->table.at(id);
    if (!block.live()) continue;
    ++block.pins;
    grant->pinned.push_back(&block);
    if (block.evict != nullptr) Evictor::CancelLocked(core_, &block);
    if (block.state == BlockState::kFaulting && block.fetch != nullptr) faulter_->DemandLocked(&block);
  }
}

void ClaimQueue::UnpinLocked(Grant* grant) {
  for (Block* block : grant->pinned) {
    SPILLWAY_CHECK(block->pins > 0);
    --block->pins;
  }
  grant->pinned.clear();
}

bool ClaimQueue::TakeChunksLocked(uint64_t needed, std::vector<ChunkHandle>* chunks) {
  if (core_->chunks.available() < needed) return false;
  const uint64_t from_free = core_->chunks.TakeFree(needed, chunks);
  core_->chunk_paths[static_cast<int>(ChunkPath::kFreeChunks)] += from_free > 0;
  uint64_t to_create = core_->chunks.BeginCreate(needed - from_free);
  if (to_create == 0) return chunks->size() == needed;
  ++core_->chunk_paths[static_cast<int>(ChunkPath::kCreated)];
  core_->table.mu.Unlock();
  absl::Status status;
  while (to_create > 0 && status.ok()) {
    ChunkHandle chunk;
    status = CreateChunk(core_->parts.driver, core_->options.device, core_->chunk_bytes, &chunk);
    core_->error.Note(status);
    if (!status.ok()) break;
    chunks->push_back(chunk);
    --to_create;
  }
  core_->table.mu.Lock();
  core_->NotePeakLocked();
  if (status.ok()) return true;
  // The device has less than the budget says: from now on the budget is what we hold.
  core_->chunks.CancelCreate(to_create);
  core_->chunks.set_target(std::min(core_->chunks.target(), core_->chunks.held()));
  core_->create_failed_nanos = os::Clock::System()->NowNanos();
  os::Log(os::LogLevel::kWarn, "the GPU gave less than the budget, which falls to " +
                                   Mib(core_->chunks.target() * core_->chunk_bytes) + ": " +
                                   std::string(status.message()));
  core_->chunks.Give(chunks);
  return false;
}

void ClaimQueue::DistributeLocked(std::vector<ChunkHandle>* chunks, Grant* grant) {
  for (Block* block : grant->pinned) {
    // The lock was released while chunks were created: meanwhile a block may have been freed, fetched on the plan's
    // account, or have lost its chunks (then there are too few; WaitLaunchable sends the launch back).
    if (block->state == BlockState::kFaulting && block->fetch != nullptr) faulter_->DemandLocked(block);
    const bool lacking = block->state == BlockState::kEmpty || block->state == BlockState::kSpilled;
    if (!lacking || block->freed || block->mapping || block->holds_chunks()) continue;
    if (chunks->size() < block->chunks) continue;
    std::vector<ChunkHandle> mine(chunks->end() - block->chunks, chunks->end());
    chunks->resize(chunks->size() - block->chunks);
    if (block->state == BlockState::kEmpty) {
      block->handles = std::move(mine);
      block->peers = 0;
      block->mapping = true;
      grant->to_map.push_back(block);
    } else {
      faulter_->BeginLocked(block, std::move(mine), /*prefetch=*/false);
      grant->to_fetch.push_back(block);
      ++core_->counters.faults;
    }
  }
  core_->chunks.Give(chunks);
}

absl::Status ClaimQueue::CheckFitsLocked(const AccessSet& set) {
  uint64_t chunks = 0;
  for (BlockId id : set) {
    const Block& block = core_->table.at(id);
    if (block.live()) chunks += block.chunks;
  }
  if (chunks <= core_->chunks.target()) return absl::OkStatus();
  return absl::ResourceExhaustedError("one launch names " + std::to_string(set.size()) +
                                      " blocks of together " + Mib(chunks * core_->chunk_bytes) +
                                      ", and the budget leaves " +
                                      Mib(core_->chunks.target() * core_->chunk_bytes) +
                                      " for them. A larger budget or smaller tensors make it fit");
}

void ClaimQueue::RefuseIfTooLargeLocked(const AccessSet& set, Ticket* ticket) {
  absl::Status status = CheckFitsLocked(set);
  if (!status.ok() && core_->create_failed_nanos != 0 && !ticket->tried_again) {
    ticket->tried_again = true;
    core_->RestoreTargetLocked();
    status = CheckFitsLocked(set);
  }
  if (ticket->refusal.ok()) ticket->refusal = std::move(status);
}

absl::Status ClaimQueue::WaitLaunchable(const Grant& grant, Name name, std::vector<CUevent>* arrivals) {
  std::optional<os::Wait> wait;
  bool named = false;
  os::MutexLock lock(&core_->table.mu);
  absl::Status status;
  for (size_t i = 0; i < grant.pinned.size() && status.ok();) {
    Block* const block = grant.pinned[i];
    if (core_->stopped.load()) {
      status = core_->StopStatus();
    } else if (IsLaunchableLocked(*block, arrivals)) {
      ++i;
    } else if (!block->holds_chunks() && !block->mapping) {
      status = block->fetch_failure.ok() ? absl::AbortedError("a block lost its chunks again")
                                         : block->fetch_failure;
    } else {
      if (!wait) {
        core_->clock.CoverAll();
        wait.emplace(core_->waits, os::WaitKind::kArrival, "");
      }
      status = AwaitLocked(
          &*wait, [&] { return name(); }, &named);
    }
  }
  if (wait) {
    const int64_t now = os::Clock::System()->NowNanos();
    core_->counters.stall_disk_nanos += now - wait->since();
    core_->counters.lost_read_nanos += core_->LostSince(wait->since(), now);
  }
  return status;
}

// Mapped, and whole or with an arrival event, which is collected; or freed meanwhile: its owner said that nobody needs it.
bool ClaimQueue::IsLaunchableLocked(const Block& block, std::vector<CUevent>* arrivals) {
  if (!block.live()) return true;
  if (block.mapping) return false;
  if (block.state == BlockState::kResident) return true;
  if (block.state != BlockState::kFaulting || block.arrival == nullptr) return false;
  const bool enough = SPILLWAY_MUTANT(kFirstArrivalOnly) && !arrivals->empty();
  if (!enough && std::find(arrivals->begin(), arrivals->end(), block.arrival) == arrivals->end()) {
    arrivals->push_back(block.arrival);
  }
  return true;
}

void ClaimQueue::NoteWaiter(const Grant& grant, Stamp before) {
  os::MutexLock lock(&core_->table.mu);
  for (Block* block : grant.pinned) {
    if (block->fetch != nullptr && block->fetch->waiter.stream == kNoStream) block->fetch->waiter = before;
  }
}

void ClaimQueue::Release(Grant* grant) {
  os::MutexLock lock(&core_->table.mu);
  UnpinLocked(grant);
  --grants_;
  // A claim behind us may have waited for these pins to go; without one nobody listens.
  if (!queue_.empty()) {
    core_->table.changed.NotifyAll();
    wake_();
  }
}

uint64_t ClaimQueue::WantedLocked() const {
  core_->table.mu.AssertHeld();
  return queue_.empty() ? 0 : queue_.front()->needed;
}

void ClaimQueue::RefuseHeadLocked(const absl::Status& why) {
  core_->table.mu.AssertHeld();
  if (queue_.empty()) return;
  queue_.front()->refusal = why;
  core_->table.changed.NotifyAll();
}

}  // namespace spillway::allocator
