#include "allocator/residency/pauser.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "allocator/driver/device_hash.h"
#include "allocator/memory/test_points.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/clean_copies.h"
#include "allocator/residency/transfer/claim_queue.h"
#include "allocator/residency/transfer/evictor.h"
#include "allocator/residency/transfer/faulter.h"
#include "allocator/residency/transfer/mapping.h"
#include "io/os/bytes_text.h"
#include "io/os/clock.h"
#include "io/os/errno.h"

namespace spillway::allocator {
namespace {

// A block stays on the GPU after so many failed copies in a row, or when its copies have failed for so long:
// a drive may come back meanwhile.
constexpr uint8_t kMaxCopyFailures = 3;
constexpr int64_t kMaxFailingNanos = 10'000'000'000;
// Copies from host memory that are enqueued at a time: as much as a fast link moves while the device's thread
// sleeps.
constexpr uint64_t kBytesUnderWay = 64 << 20;
// Evictions under way at a time. A block that is hashed beside its copy is not copied again at the next
// pause, and the hash has only so many places for all its users.
constexpr size_t kMaxLeaving = DeviceHash::kPlaces * 3 / 4;
constexpr int64_t kAgainNanos = 10'000'000;
constexpr int kMaxGrowths = 100;

template <typename Visitor>
void ForEachOf(BlockTable* table, const TableLock& lock, const PauseScope& scope, Visitor visit)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(table->mu) {
  table->ForEachLiveLocked(lock, [&](Block* block) {
    if (scope.tag == 0 || block->pause.region.tag == scope.tag) visit(block);
  });
}

// Whether the Evictor may be given this paused block.
bool MayStart(const Block& block, int64_t now) {
  const bool waits = block.eviction.failures > 0 && now < block.eviction.again_at;
  return block.state == BlockState::kResident && block.pins == 0 && block.eviction.job == nullptr &&
         !block.memory.mapping && !waits;
}

}  // namespace

Pauser::Pauser(Core* core, const Parts& parts, std::function<void()> wake)
    : core_(core),
      charges_(parts.charges),
      clean_(parts.clean),
      soft_(parts.soft),
      evictor_(parts.evictor),
      faulter_(parts.faulter),
      claims_(parts.claims),
      planned_(parts.planned),
      release_free_(parts.release_free),
      empty_cache_(parts.empty_cache),
      wake_(std::move(wake)) {}

// ---- Away.

absl::Status Pauser::Pause(const PauseScope& scope, PauseStats* stats) {
  Run run = {.stats = stats, .began = os::Clock::System()->NowNanos()};
  if (scope.tag == 0) empty_cache_().IgnoreError();  // what stays is counted
  {
    TableLock lock(core_->table);
    if (core_->stopped.load()) return core_->StopStatus();
    if (!core_->evict.load())
      return IllegalState("nothing can be paused: no block may leave the GPU in this job");
    SPILLWAY_RETURN_IF_ERROR(MarkLocked(&lock, scope, &run));
    if (scope.tag == 0 && scope.by == PausedBy::kOutside) core_->table.PauseNewLocked(lock, true);
  }
  // A launch that saw the open gate has recorded its use when this wait ends. Only then is it certain that
  // nobody marks a block that is dropped as used any more.
  if (!SPILLWAY_MUTANT(kPauseSkipsSections)) core_->read_sections.WaitForAll(core_->waits);
  const os::Wait wait(core_->waits, os::WaitKind::kPause,
                      std::to_string(run.leaving.size()) + " blocks to leave");
  absl::Status status;
  {
    const TableLock lock(core_->table);
    runs_.push_back(&run);
    cancels_prefetches_ = true;
  }
  for (bool more = true; more && status.ok();) {
    if (!SPILLWAY_MUTANT(kPauseUnheard)) wake_();
    status = AwaitLeaving(&run, wait);
    if (scope.tag != 0 || !status.ok()) break;
    empty_cache_().IgnoreError();
    TableLock lock(core_->table);
    // A job that goes on, or is resumed by now, may always free more.
    if (scope.by != PausedBy::kOutside || !core_->table.pauses_new(lock)) break;
    // Other streams, or transfers, still use what was freed.
    const size_t freed = core_->table.CountLocked(lock, BlockState::kCached) +
                         core_->table.CountLocked(lock, BlockState::kFaulting) +
                         core_->table.CountLocked(lock, BlockState::kEvicting);
    more = AddHandedOutLocked(lock, &run) || freed > 0;
    if (freed > 0) status = core_->AwaitChangeLocked(&lock, wait);
  }
  {
    const TableLock lock(core_->table);
    std::erase(runs_, &run);
  }
  if (!status.ok())
    Resume(scope, /*wait=*/false).IgnoreError();  // undoes a pause that the user's limit of waits has ended
  stats->nanos += os::Clock::System()->NowNanos() - run.began;
  return status;
}

absl::Status Pauser::AwaitLeaving(Run* run, const os::Wait& wait) {
  absl::Status status;
  for (bool more = true; more;) {
    {
      TableLock lock(core_->table);
      more = status.ok() && !run->leaving.empty();
      if (more) status = core_->AwaitChangeLocked(&lock, wait);
    }
    release_free_().IgnoreError();  // the device keeps the error
  }
  return status;
}

bool Pauser::AddHandedOutLocked(const TableLock& lock, Run* run) {
  core_->table.ForEachLocked(lock, BlockState::kResident, [&](Block* block) {
    const Entry entry = {block, block->allocation.generation};
    if (!block->paused() || !block->pause.no_bytes) return;
    if (std::ranges::find(run->staying, entry) == run->staying.end()) run->leaving.push_back(entry);
  });
  return !run->leaving.empty();
}

absl::Status Pauser::MarkLocked(TableLock* lock, const PauseScope& scope, Run* run) {
  // Another device may take the capacity that has grown for this one, so the growth is repeated, a bounded
  // number of times.
  for (int growths = 0;; ++growths) {
    uint64_t chunks = 0;
    ForEachOf(&core_->table, *lock, scope, [&](Block* block) {
      const bool keeps = block->pause.region.keep || scope.by == PausedBy::kIdle;
      if (!block->paused() && keeps && block->pin_reasons == 0) chunks += block->chunks;
    });
    const uint64_t bytes = chunks * core_->chunk_bytes;
    const uint64_t more = charges_->PromisePause(*lock, bytes);
    if (more == 0) break;
    core_->table.mu.Unlock();
    const absl::Status grown = charges_->capacity()->Grow(more);
    core_->table.mu.Lock();
    if (!grown.ok() || growths == kMaxGrowths) {
      const uint64_t lacking = more - std::min(more, charges_->capacity()->UnpromisedNow());
      return absl::ResourceExhaustedError(
          "host memory and disk have no place for " + os::BytesText(lacking) + " of the " +
          os::BytesText(bytes) + " that are to be paused (" + std::string(grown.message()) +
          "). To do: raise SPILLWAY_HOST_MEMORY, or name more directories in SPILLWAY_DIRS");
    }
  }
  ForEachOf(&core_->table, *lock, scope, [&](Block* block) {
    // A block that the job or somebody outside has paused comes back only at their resume, so idleness leaves
    // it alone.
    lock->Covers(core_->table);
    if (scope.by == PausedBy::kIdle && block->paused() && !IsIdle(block->pause.by)) return;
    core_->table.PauseLocked(*lock, block, scope.by);
    const bool stays = block->pin_reasons != 0;
    if (stays || block->has_chunks() || block->memory.mapping || block->memory.soft || block->pins > 0) {
      run->leaving.push_back({block, block->allocation.generation, stays});
      // A copy that failed before may have a place by now, or may need none. It is tried at once, and its
      // failures are counted anew.
      block->eviction.failures = 0;
      block->eviction.again_at = 0;
    } else {
      DropLocked(*lock, block);
    }
  });
  return absl::OkStatus();
}

void Pauser::DropLocked(const TableLock& lock, Block* block) {
  const bool keeps = SPILLWAY_MUTANT(kIdlenessDrops) ? block->pause.region.keep
                                                     : KeepsBytes(block->pause.region, block->pause.by);
  if (keeps || block->pin_reasons != 0) return;  // a block with a pin stays, and is used
  if (block->memory.mapping || block->pins > 0) return;
  if (block->state == BlockState::kResident && block->eviction.job == nullptr) {
    if (!SPILLWAY_MUTANT(kDroppedKeepsCopy)) clean_->Drop(lock, block);
    block->gate.used.store(false, std::memory_order_relaxed);
  } else if (block->memory.soft) {
    soft_->EndLocked(lock, block);
  } else if (block->state == BlockState::kSpilled && !SPILLWAY_MUTANT(kSpilledNotDropped)) {
    clean_->Release(lock, &block->copies.homes);
    block->copies.content_known = false;
    block->gate.used.store(false, std::memory_order_relaxed);
    core_->table.MoveLocked(lock, block, BlockState::kEmpty);
  }
}

bool Pauser::StartLeavingLocked(const TableLock& lock) {
  const int64_t now = os::Clock::System()->NowNanos();
  std::vector<Block*> victims;
  const size_t leaving = core_->table.CountLocked(lock, BlockState::kEvicting);
  const size_t most = kMaxLeaving - std::min(leaving, kMaxLeaving);
  bool ended = false;
  if (std::exchange(cancels_prefetches_, false)) faulter_->CancelPrefetchesLocked(lock);
  for (Run* run : runs_) {
    if (run->leaving.empty()) continue;
    // Entries are visited in order, and those under way are among the first. The later ones are visited only
    // while more may start.
    std::vector<Entry>& entries = run->leaving;
    size_t looked = 0, kept = 0;
    for (; looked < entries.size() && (looked < 2 * kMaxLeaving || victims.size() < most); ++looked) {
      const Entry entry = entries[looked];
      // This includes blocks that are spilled again by now, since an eviction had begun or a fetch was taken
      // back.
      if (PausedStill(entry) && !entry.stays) DropLocked(lock, entry.block);
      if (SettledLocked(lock, entry, run)) continue;
      entries[kept++] = entry;
      if (victims.size() < most && MayStart(*entry.block, now) &&
          std::ranges::find(victims, entry.block) == victims.end())
        victims.push_back(entry.block);
    }
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(kept),
                  entries.begin() + static_cast<std::ptrdiff_t>(looked));
    ended |= entries.empty();
  }
  if (ended) core_->table.changed.NotifyAll();
  if (!victims.empty()) evictor_->StartLocked(lock, victims);
  return ended || !victims.empty();
}

bool Pauser::SettledLocked(const TableLock& lock, const Entry& entry, Run* run) {
  const Block& block = *entry.block;
  PauseStats* const stats = run->stats;
  const uint64_t bytes = block.chunks * core_->chunk_bytes;
  if (!PausedStill(entry)) return true;
  const bool prepares = block.pins > 0 && !SPILLWAY_MUTANT(kPauseForgetsPins);
  if (block.memory.mapping || prepares) return false;  // a launch in preparation ends first
  const auto stays = [&](uint64_t* counted) {
    *counted += bytes;
    run->staying.push_back(entry);
    return true;
  };
  if (entry.stays) return stays(&stats->pinned_bytes);
  switch (block.state) {
    case BlockState::kEmpty:
      (KeepsBytes(block.pause.region, block.pause.by) ? stats->unused_bytes : stats->dropped_bytes) += bytes;
      return true;
    case BlockState::kSpilled: {
      if (block.memory.soft && !KeepsBytes(block.pause.region, block.pause.by)) return false;
      if (block.eviction.clean) {
        stats->clean_bytes += bytes;
        return true;
      }
      for (const ExtentHome& home : block.copies.homes)
        (home.on_disk() ? stats->disk_bytes : stats->host_bytes) += core_->chunk_bytes;
      return true;
    }
    case BlockState::kResident: break;
    default: return false;
  }
  if (block.pin_reasons != 0 || !core_->MayLeave(block)) return stays(&stats->pinned_bytes);
  if (block.eviction.failures == 0 || block.eviction.failed_at < run->began) return false;
  const bool gives_up = block.eviction.failures >= kMaxCopyFailures ||
                        os::Clock::System()->NowNanos() - run->began > kMaxFailingNanos;
  if (!gives_up) return false;
  if (stats->failure.empty()) stats->failure = std::string(evictor_->first_failure().message());
  return stays(&stats->failed_bytes);
}

// Copies one extent at a time, so that the lock is kept no longer than one extent takes. The block changes
// meanwhile only by misuse: a free or a resume by another thread.
absl::Status Pauser::Read(CUdeviceptr address, std::byte* to, uint64_t bytes) const {
  for (uint64_t at = 0; at < bytes; at += core_->chunk_bytes) {
    const TableLock lock(core_->table);
    const Block* const block = core_->table.FindLocked(lock, address);
    const bool there = block != nullptr && block->address == address && block->paused() &&
                       block->state == BlockState::kSpilled && bytes <= block->allocation.requested_bytes;
    if (!there) return absl::NotFoundError("no paused block begins there, or its bytes are not away");
    const ExtentHome& home = block->copies.homes[at / core_->chunk_bytes];
    if (home.on_disk()) return absl::NotFoundError("it lies on the disk");
    std::memcpy(to + at, home.buffer.data, std::min(core_->chunk_bytes, bytes - at));
  }
  return absl::OkStatus();
}

// ---- And back.

absl::Status Pauser::Resume(const PauseScope& scope, bool wait) {
  std::vector<Entry> back;
  {
    const TableLock lock(core_->table);
    if (scope.tag == 0 && scope.by == PausedBy::kOutside && !SPILLWAY_MUTANT(kOutsideStays))
      core_->table.PauseNewLocked(lock, false);
    ForEachOf(&core_->table, lock, scope, [&](Block* block) {
      lock.Covers(core_->table);
      if (!block->paused()) return;
      core_->table.ResumeLocked(lock, block, scope.by);
      if (!block->paused() && block->state == BlockState::kSpilled)
        back.push_back({block, block->allocation.generation});
    });
    charges_->LowerPromise(lock);
    returning_.insert(returning_.end(), back.begin(), back.end());
    ordered_ = false;
    core_->table.changed.NotifyAll();
  }
  if (!SPILLWAY_MUTANT(kResumeUnheard)) wake_();
  if (!wait) return absl::OkStatus();
  const os::Wait waits(core_->waits, os::WaitKind::kArrival, "resumed blocks");
  TableLock lock(core_->table);
  const auto under_way = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!returning_.empty()) return true;
    return std::ranges::any_of(back, [](const Entry& entry) {
      return entry.block->allocation.generation == entry.generation &&
             entry.block->state == BlockState::kFaulting;
    });
  };
  while (under_way()) SPILLWAY_RETURN_IF_ERROR(core_->AwaitChangeLocked(&lock, waits));
  return absl::OkStatus();
}

// Orders by the plan in force. If there is no plan, the block that was used longest ago comes first, as it
// does in the next iteration.
void Pauser::OrderLocked(const TableLock& lock) {
  lock.Covers(core_->table);
  if (std::exchange(ordered_, true)) return;
  const policy::LaunchIndex now = planned_->Now();
  // Each key is read once. Launches change the last use meanwhile, and a sort whose keys change may run out
  // of bounds.
  std::vector<std::pair<std::pair<policy::LaunchIndex, uint64_t>, Entry>> keyed;
  for (const Entry& entry : returning_)
    keyed.push_back({{planned_->NextUse(*entry.block, now), entry.block->gate.last_use.load()}, entry});
  std::ranges::stable_sort(keyed, {}, [](const auto& of_entry) { return of_entry.first; });
  std::ranges::transform(keyed, returning_.begin(), [](const auto& of_entry) { return of_entry.second; });
}

bool Pauser::ReturnsLocked(const TableLock& lock, const Entry& entry) {
  const Block& block = *entry.block;
  return block.allocation.generation == entry.generation && block.live() &&
         (!block.paused() || SPILLWAY_MUTANT(kReturnsPaused)) &&
         block.MayBeFetched(os::Clock::System()->NowNanos());
}

Block* Pauser::BeginReturnLocked(TableLock* lock, bool* paused_again) {
  const size_t before = returning_.size();
  while (!returning_.empty() && !ReturnsLocked(*lock, returning_.front())) returning_.pop_front();
  if (before > 0 && returning_.empty()) core_->table.changed.NotifyAll();
  // A waiting launch comes first, and so do the blocks that are on their way already. Chunks taken earlier
  // would lie idle until then.
  const uint64_t staging = core_->parts.host == nullptr
                               ? 0
                               : core_->parts.host->Limit(HostUse::kFaultStaging) * core_->chunk_bytes;
  const uint64_t arriving = core_->table.ChunksLocked(*lock, BlockState::kFaulting) * core_->chunk_bytes;
  if (returning_.empty() || claims_->WantedLocked(*lock) > 0 || arriving >= kBytesUnderWay + staging)
    return nullptr;
  const Entry entry = returning_.front();
  const bool keep_reserve = core_->pressure.load() && !planned_->active();
  const uint64_t reserve = keep_reserve ? core_->free_reserve_bytes.load() / core_->chunk_bytes : 0;
  std::vector<ChunkHandle> handles;
  const bool fits = charges_->chunks(*lock).available() >= reserve + entry.block->chunks;
  if (!fits && !runs_.empty()) return nullptr;  // other blocks are leaving
  if (!fits || !TakeChunksLocked(core_, charges_, lock, {entry.block->chunks}, &handles)) {
    // The GPU is full. The other blocks come back when launches name them.
    returning_.clear();
    core_->table.changed.NotifyAll();
    return nullptr;
  }
  // TakeChunksLocked may have released the lock.
  if (ReturnsLocked(*lock, entry) && ChunksOf(handles) == entry.block->chunks) {
    faulter_->BeginLocked(*lock, entry.block, std::move(handles), /*prefetch=*/true);
    return entry.block;
  }
  charges_->chunks(*lock).Give(&handles);
  *paused_again = entry.block->paused();
  return nullptr;
}

bool Pauser::Poll() {
  bool moved;
  {
    const TableLock lock(core_->table);
    active_ = !runs_.empty() || !returning_.empty();
    if (!active_) return false;
    moved = StartLeavingLocked(lock);
    OrderLocked(lock);
  }
  for (;;) {
    Block* block;
    bool paused_again = false;
    {
      TableLock lock(core_->table);
      block = BeginReturnLocked(&lock, &paused_again);
    }
    // The block was paused while its chunks were made. The thread that paused it gives no more chunks back,
    // so they are released here.
    if (paused_again) release_free_().IgnoreError();  // the device keeps the error
    if (block == nullptr) return moved;
    ++core_->counters.prefetches;
    moved = true;
    if (faulter_->Start(block).ok()) continue;
    const TableLock lock(core_->table);
    block->fetch.again_at = os::Clock::System()->NowNanos() + kAgainNanos;
  }
}

}  // namespace spillway::allocator
