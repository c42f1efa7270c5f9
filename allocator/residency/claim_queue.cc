#include "allocator/residency/claim_queue.h"

#include <algorithm>
#include <string>
#include <utility>

#include "allocator/residency/evictor.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

constexpr int64_t kTellAfterNanos = 10'000'000'000;  // a longer wait is told to the user, once

std::string Mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

ClaimQueue::ClaimQueue(Core* core, Faulter* faulter, std::function<void()> wake)
    : core_(core), faulter_(faulter), wake_(std::move(wake)) {}

absl::Status ClaimQueue::Claim(const AccessSet& set, Grant* grant) {
  Ticket ticket;
  bool queued = false;
  bool told = false;
  const int64_t start = os::Clock::System()->NowNanos();
  os::MutexLock lock(&core_->table.mu);
  for (;;) {
    const Lack lack = LackOfLocked(set);
    // Who would only have to take evictions back may do so while nobody waits for them; else it is behind them.
    const bool waits = lack.chunks > 0 || lack.busy || (lack.leaving && !queue_.empty());
    if (!queued && !waits) {
      PinLocked(set, grant);
      break;
    }
    if (!queued) {
      RefuseIfTooLargeLocked(set, &ticket);
      if (!ticket.refusal.ok()) return ticket.refusal;
      queue_.push_back(&ticket);
      queued = true;
      core_->clock.CoverAll();  // so that it is seen when the GPU has nothing left to do
    }
    if (queue_.front() == &ticket) {
      if (grant->pinned.empty()) {
        PinLocked(set, grant);
        continue;  // pinning may have taken an eviction back
      }
      std::vector<ChunkHandle> chunks;
      if (!lack.busy && TakeChunksLocked(lack.chunks, &chunks)) {
        DistributeLocked(&chunks, grant);
        break;
      }
      RefuseIfTooLargeLocked(set, &ticket);
      // The lock may have been released: what is missing is looked up again after the wait.
      ticket.needed = lack.chunks;
      wake_();
    }
    if (!ticket.refusal.ok() || core_->closed.load()) {
      UnpinLocked(grant);
      std::erase(queue_, &ticket);
      core_->table.changed.NotifyAll();
      return ticket.refusal.ok() ? absl::CancelledError("Spillway has shut down") : ticket.refusal;
    }
    core_->table.changed.WaitRechecking(&core_->table.mu, std::chrono::milliseconds(100));
    if (!told && os::Clock::System()->NowNanos() - start > kTellAfterNanos) {
      told = true;
      os::Announce("a launch has waited 10 s for room: it lacks " + Mib(ticket.needed * core_->chunk_bytes) +
                   ", " + std::to_string(queue_.size()) + " launches wait, " + std::to_string(grants_) +
                   " are being prepared, " + std::to_string(core_->clock.UncompletedLaunches()) +
                   " are on the GPU (one of them may be waiting for a later call of this thread)");
    }
  }
  if (queued) {
    std::erase(queue_, &ticket);
    const int64_t now = os::Clock::System()->NowNanos();
    core_->counters.stall_room_nanos += now - start;
    core_->counters.lost_room_nanos += core_->LostSince(start, now);
    core_->table.changed.NotifyAll();
  }
  ++grants_;
  return absl::OkStatus();
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
                                      " for them. A larger budget or smaller tensors make it fit.");
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

absl::Status ClaimQueue::WaitLaunchable(const Grant& grant, std::vector<CUevent>* arrivals) {
  const int64_t start = os::Clock::System()->NowNanos();
  bool waited = false;
  os::MutexLock lock(&core_->table.mu);
  for (Block* block : grant.pinned) {
    for (;;) {
      if (core_->closed.load()) return absl::CancelledError("Spillway has shut down");
      if (block->state == BlockState::kResident && !block->mapping) break;
      if (block->state == BlockState::kFaulting && !block->mapping && block->arrival != nullptr) {
        if (std::find(arrivals->begin(), arrivals->end(), block->arrival) == arrivals->end()) {
          arrivals->push_back(block->arrival);
        }
        break;
      }
      if (!block->live()) break;  // freed meanwhile: its owner said that nobody needs it
      if (!block->holds_chunks() && !block->mapping)
        return absl::AbortedError("a block lost its chunks again");
      if (!waited) core_->clock.CoverAll();
      waited = true;
      core_->table.changed.WaitRechecking(&core_->table.mu, std::chrono::milliseconds(100));
    }
  }
  if (waited) {
    const int64_t now = os::Clock::System()->NowNanos();
    core_->counters.stall_disk_nanos += now - start;
    core_->counters.lost_read_nanos += core_->LostSince(start, now);
  }
  return absl::OkStatus();
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
