#include "allocator/residency/transfer/reclaimer.h"

#include <algorithm>
#include <string>

#include "allocator/memory/test_points.h"
#include "io/os/bytes_text.h"
#include "io/os/clock.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

// Time for which nothing may help the first claim before it is refused: another thread's pins or frees may
// still end.
constexpr int64_t kStuckNanos = 200'000'000;
// The same after evictions have failed, because the cause may pass.
constexpr int64_t kFailureNanos = 1'000'000'000;
// Longest time for which a waiting launch counts on evictions that wait for uses of their blocks. Other
// blocks leave, too, after that.
constexpr int64_t kLongestUseNanos = 1'000'000'000;
// Time between two checks by a claim that waits for host buffers, or for blocks that are to come back whole.
constexpr int64_t kRecheckNanos = 10'000'000;
// Time for which a refused chunk keeps the budget down.
constexpr int64_t kTryCreateNanos = 1'000'000'000;

bool HasNoPinOrTransfer(const Block& block) {
  return block.pins == 0 && block.pin_reasons == 0 && block.eviction.job == nullptr &&
         !block.memory.mapping && !block.allocation.freed;
}

uint64_t ChunkCount(const std::vector<Block*>& blocks) {
  uint64_t chunks = 0;
  for (const Block* block : blocks) chunks += block->device_chunks();
  return chunks;
}

// A block whose eviction failed is left alone for a while.
bool Pauses(const Block& block, int64_t now) {
  return block.eviction.failures > 0 && now < block.eviction.again_at;
}

}  // namespace

Reclaimer::Reclaimer(Core* core, const Parts& parts)
    : core_(core),
      charges_(parts.charges),
      addresses_(parts.addresses),
      evictor_(parts.evictor),
      faulter_(parts.faulter),
      claims_(parts.claims),
      planned_(parts.planned),
      probe_(parts.probe),
      demoter_(parts.demoter) {}

bool Reclaimer::Poll() {
  const bool started = StartEvictions();
  const bool freed = FreeHostBuffers();
  return ReleaseExcess() || started || freed;
}

// ---- How much must leave.

uint64_t Reclaimer::ChunksComingLocked(const TableLock& lock) const {
  const int64_t now = os::Clock::System()->NowNanos();
  return evictor_->chunks_coming(lock) - evictor_->ChunksStalledLocked(lock, now - kLongestUseNanos);
}

Reclaimer::Missing Reclaimer::MissingChunksLocked(const TableLock& lock) {
  const auto above = [](uint64_t goal, uint64_t have) { return goal > have ? goal - have : 0; };
  const uint64_t coming = ChunksComingLocked(lock);
  // A plan keeps its own headroom. A reserve is kept when there is no plan, so that a fault seldom waits.
  const bool keep_reserve = core_->pressure.load() && core_->evict.load() && !planned_->active();
  const uint64_t reserve = keep_reserve ? core_->free_reserve_bytes.load() / core_->chunk_bytes : 0;
  // Claims and the reserve may use every available chunk. Chunks above the target must become free ones,
  // since only those can go back to the driver.
  Missing missing;
  missing.any = std::max(
      above(std::max(claims_->WantedLocked(lock), reserve), charges_->chunks(lock).available() + coming),
      above(charges_->chunks(lock).excess(), charges_->chunks(lock).free() + coming));
  missing.cached_only = above(planned_->chunks_wanted(), charges_->chunks(lock).available() + coming);
  return missing;
}

bool Reclaimer::StartEvictions() {
  bool started;
  {
    const TableLock lock(core_->table);
    if (charges_->lowered_at(lock) != 0 &&
        os::Clock::System()->NowNanos() - charges_->lowered_at(lock) > kTryCreateNanos) {
      charges_->RestoreTarget(lock);
    }
    const Missing missing = MissingChunksLocked(lock);
    // An eviction that failed is tried again after its delay, and a budget that fell after a second.
    host_waits_ = claims_->waits_unheard(lock);
    waits_for_time_ =
        host_waits_ || missing.any > 0 || missing.cached_only > 0 || charges_->lowered_at(lock) != 0;
    if (missing.any == 0) stuck_since_ = 0;
    if (missing.any == 0 && missing.cached_only == 0) return false;
  }
  core_->clock.CoverAll();  // so that the next poll knows which blocks are idle
  {
    const TableLock lock(core_->table);
    const Missing missing = MissingChunksLocked(lock);
    const bool demand =
        claims_->WantedLocked(lock) > charges_->chunks(lock).available() + ChunksComingLocked(lock);
    bool cancelled = false;
    std::vector<Block*> victims;
    const uint64_t decommitted =
        ChooseDecommitsLocked(lock, std::max(missing.any, missing.cached_only), demand, &victims);
    if (missing.any > decommitted && core_->evict.load())
      ChooseVictimsLocked(lock, missing.any - decommitted, demand, &victims);
    // A prefetched block is needed soon, so it gives its chunks back only when nothing else can.
    if (demand && ChunkCount(victims) < missing.any) cancelled = faulter_->CancelPrefetchesLocked(lock);
    started = !victims.empty();
    if (started) evictor_->StartLocked(lock, victims);
    if (demand) RefuseIfStuckLocked(lock, cancelled);
    if (!demand) stuck_since_ = 0;
  }
  return started;
}

// ---- Which blocks leave.

void Reclaimer::SelectLocked(const TableLock& lock, policy::VictimIndex* index, uint64_t chunks,
                             absl::FunctionRef<uint64_t(const Block&)> idle_since,
                             absl::FunctionRef<bool(const Block&)> may_leave, std::vector<Block*>* victims) {
  const BlockTable& table = core_->table;
  const policy::LaunchIndex now = planned_->Now();
  const auto facts = [&](policy::VictimIndex::Key key) {
    const Block& block = *table.BlockOf(key);
    return policy::VictimIndex::Facts{idle_since(block), planned_->NextUse(block, now)};
  };
  const auto bytes = [&](policy::VictimIndex::Key key) -> policy::Bytes {
    const Block& block = *table.BlockOf(key);
    return HasNoPinOrTransfer(block) && may_leave(block) ? block.device_chunks() : 0;
  };
  SPILLWAY_BEFORE_SELECTION();
  const std::vector<policy::VictimIndex::Key> chosen =
      index->Select(chunks, now, planned_->plan_number(), facts, bytes);
  SPILLWAY_AFTER_SELECTION(*index, chunks, facts, bytes, chosen);
  for (const auto key : chosen) victims->push_back(table.BlockOf(key));
}

// Chooses blocks with nothing worth keeping: first freed ones, then those that were handed out and not used
// yet.
uint64_t Reclaimer::ChooseDecommitsLocked(const TableLock& lock, uint64_t chunks, bool demand,
                                          std::vector<Block*>* victims) {
  BlockTable::Victims& choice = core_->table.victims;
  for (const auto key : choice.unused.Keys()) {
    if (!core_->table.BlockOf(key)->used_since_hand_out()) continue;
    choice.unused.Remove(key);
    choice.idle.Add(key);
  }
  const int64_t now = os::Clock::System()->NowNanos();
  SelectLocked(
      lock, &choice.cached, chunks, [](const Block& block) { return block.allocation.freed_at; },
      [now](const Block& block) { return block.allocation.listed && !Pauses(block, now); }, victims);
  const uint64_t cached = ChunkCount(*victims);
  if (!demand || cached >= chunks) return cached;
  SelectLocked(
      lock, &choice.unused, chunks - cached,
      [](const Block& block) { return block.allocation.handed_out_at; },
      [now](const Block& block) { return !block.used_since_hand_out() && !Pauses(block, now); }, victims);
  return ChunkCount(*victims);
}

// Chooses live blocks: the one needed farthest ahead, or else the least recently used. In the background only
// blocks whose last use is over leave; any block leaves for a waiting launch. A block whose eviction failed
// is left alone for its delay.
void Reclaimer::ChooseVictimsLocked(const TableLock& lock, uint64_t chunks, bool demand,
                                    std::vector<Block*>* victims) {
  const int64_t now = os::Clock::System()->NowNanos();
  const auto may_leave = [&](const Block& block) {
    if (!block.used_since_hand_out() || !core_->MayLeave(block)) return false;
    if (Pauses(block, now)) return false;
    return demand || IsIdle(block);
  };
  const size_t decommitted = victims->size();
  SelectLocked(
      lock, &core_->table.victims.idle, chunks, [](const Block& block) { return block.gate.last_use.load(); },
      may_leave, victims);
  for (size_t i = decommitted; i < victims->size(); ++i)
    planned_->RecordUnplannedLocked(lock, *(*victims)[i]);
  if (victims->size() > decommitted && !core_->pressure.exchange(true)) {
    const Charges::Metrics metrics = charges_->metrics(lock);
    std::string text = metrics.share_bytes > 0
                           ? "spilling starts: the job has outgrown its share of the GPU, "
                           : "spilling starts: the job has outgrown its budget of ";
    text += os::BytesText(metrics.budget_bytes);
    if (metrics.target_bytes < metrics.budget_bytes)
      text += ", of which " + os::BytesText(metrics.target_bytes) + " are for its blocks";
    os::ReportLine(text);
  }
}

bool Reclaimer::IsIdle(const Block& block) const {
  return std::ranges::all_of(block.gate.uses, [&](const auto& packed) {
    const TimelineValue value = TimelineValue::Unpack(packed.load(std::memory_order_relaxed));
    return value.stream == kNoStream || core_->clock.Completed(value);
  });
}

// Ends the delays of blocks that could not leave before the first claim came, because their obstacle may have
// gone by now. Returns true when there was such a block; each counts once for a claim.
bool Reclaimer::EndEarlierPausesLocked(const TableLock& lock) {
  const int64_t now = os::Clock::System()->NowNanos();
  bool any = false;
  const auto end = [&](Block* block) {
    if (!Pauses(*block, now) || block->eviction.failed_at >= head_since_) return;
    block->eviction.again_at = now;
    any = true;
  };
  core_->table.ForEachLiveLocked(lock, [&](Block* block) {
    if (HasNoPinOrTransfer(*block)) end(block);
  });
  core_->table.ForEachLocked(lock, BlockState::kCached, end);
  if (any) evictor_->ForgetFailures();
  return any;
}

// Refuses the first claim when nothing is left that could free chunks. A block whose eviction failed is tried
// again, and counts as able to free chunks until an eviction has failed since chunks were last freed. The
// last resorts come in order: ending earlier delays, lending, waiting for a larger share, reaching more in
// host memory. The claim is refused when none of them helps.
void Reclaimer::RefuseIfStuckLocked(const TableLock& lock, bool cancelled) {
  const int64_t now = os::Clock::System()->NowNanos();
  const uint64_t freed = core_->counters.evictions.load() + addresses_->frees(lock);
  const uint64_t head = claims_->HeadLocked(lock);
  if (head != stuck_head_) head_since_ = now;
  if (head != stuck_head_ || freed != freed_then_) evictor_->ForgetFailures();
  const bool retries = evictor_->first_failure().ok() && evictor_->chunks_coming(lock) > 0;
  const bool may_free = cancelled || retries || evictor_->MayFreeLocked(lock) || claims_->grants(lock) > 0 ||
                        faulter_->prefetches_under_way() > 0 || probe_->measuring() ||
                        core_->MayDriveComeBack(now) || core_->clock.MayComplete();
  if (stuck_since_ == 0 || head != stuck_head_ || freed != freed_then_ || may_free) {
    stuck_since_ = may_free ? 0 : now;
    stuck_head_ = head;
    freed_then_ = freed;
    return;
  }
  const absl::Status& failure = evictor_->first_failure();
  if (now - stuck_since_ < (failure.ok() ? kStuckNanos : kFailureNanos)) return;
  stuck_since_ = 0;
  if (EndEarlierPausesLocked(lock)) return;
  const ChunkPool& chunks = charges_->chunks(lock);
  const uint64_t needed =
      chunks.created() + claims_->WantedLocked(lock) - std::min(chunks.created(), chunks.free());
  if (charges_->Lend(lock, needed)) return;
  if (failure.ok() && claims_->SendForShareLocked(lock, needed)) return;
  if (claims_->ReachMoreLocked(lock)) return;
  if (failure.ok()) {
    claims_->RefuseHeadLocked(lock, absl::ResourceExhaustedError("every other block must stay on the GPU"));
  } else if (ResultOf(failure) == CUDA_ERROR_UNKNOWN) {
    claims_->RefuseHeadLocked(lock, absl::ResourceExhaustedError("nothing more can be moved off the GPU: " +
                                                                 std::string(failure.message())));
  } else {
    claims_->RefuseHeadLocked(lock, failure);
  }
}

// ---- Host buffers for extents that a launch reaches.

// Any reached block that is not needed now leaves. The Demoter writes the blocks that left longest ago to the
// disk.
bool Reclaimer::FreeHostBuffers() {
  if (!host_waits_) {
    host_stuck_since_ = 0;
    return false;
  }
  const TableLock lock(core_->table);
  const int64_t now = os::Clock::System()->NowNanos();
  if (now >= recheck_at_) {
    recheck_at_ = now + kRecheckNanos;
    core_->table.changed.NotifyAll();
  }
  const uint64_t wanted = claims_->HostWantedLocked(lock);
  if (wanted == 0) {
    host_stuck_since_ = 0;
    return false;
  }
  std::vector<Block*> victims;
  uint64_t coming = 0;
  if (core_->table.reached_extents > 0 && core_->evict.load()) {
    const auto look = [&](Block* block) {
      if (block->memory.reached.empty()) return;
      if (block->eviction.job != nullptr) {
        coming += block->memory.reached.size();
      } else if (HasNoPinOrTransfer(*block) && core_->MayLeave(*block) && !Pauses(*block, now)) {
        victims.push_back(block);
      }
    };
    core_->table.ForEachLocked(lock, BlockState::kResident, look);
    core_->table.ForEachLocked(lock, BlockState::kCached, look);
    core_->table.ForEachLocked(lock, BlockState::kEvicting, look);
  }
  evictor_->StartLocked(lock, victims, policy::PlanTier::kDisk);
  RefuseIfNoHostLocked(lock, wanted, !victims.empty() || coming > 0);
  return !victims.empty();
}

void Reclaimer::RefuseIfNoHostLocked(const TableLock& lock, uint64_t wanted, bool coming) {
  const int64_t now = os::Clock::System()->NowNanos();
  const HostPool& host = *core_->parts.host;
  const uint64_t head = claims_->HeadLocked(lock);
  const size_t free = host.Free(HostUse::kStorage);
  const bool moves = coming || claims_->grants(lock) > 0 || !evictor_->idle() || !demoter_->idle() ||
                     host.storage_growing() || free != host_free_then_ || core_->MayDriveComeBack(now) ||
                     core_->clock.MayComplete();
  if (host_stuck_since_ == 0 || head != host_stuck_head_ || moves) {
    host_stuck_since_ = now;
    host_stuck_head_ = head;
    host_free_then_ = free;
  }
  // This is twice the Demoter's interval, which is one second.
  if (now - host_stuck_since_ < 2 * kFailureNanos) return;
  host_stuck_since_ = 0;
  claims_->RefuseHeadLocked(
      lock, absl::ResourceExhaustedError(
                "the blocks of one launch do not fit the GPU together, and the host tier of " +
                os::BytesText(host.storage_capacity_bytes()) + " has no place for " +
                os::BytesText(wanted * core_->chunk_bytes) +
                " of them. A larger budget, more host memory or smaller tensors make it fit"));
}

// ---- Giving chunks back.

bool Reclaimer::ReleaseExcess() {
  std::vector<ChunkHandle> handles;
  {
    const TableLock lock(core_->table);
    if (charges_->chunks(lock).excess() == 0) return false;
    charges_->chunks(lock).BeginRelease(charges_->chunks(lock).excess(), &handles);
  }
  if (handles.empty()) return false;
  const absl::Status released = Release(core_->parts.driver, handles);
  core_->error.Record(released);
  if (!released.ok())
    os::Log(os::LogLevel::kWarn, "GPU memory is lost to the process: " + std::string(released.message()));
  const TableLock lock(core_->table);
  charges_->chunks(lock).EndRelease(ChunksOf(handles));
  core_->table.changed.NotifyAll();
  return true;
}

}  // namespace spillway::allocator
