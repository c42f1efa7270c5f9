#include "allocator/residency/state/charges.h"

#include <algorithm>
#include <string>
#include <utility>

#include "allocator/memory/address_map.h"
#include "allocator/memory/test_points.h"
#include "io/os/bytes_text.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kLinesPerBudget = 16;  // upper limit of lines about a falling budget

}  // namespace

Charges::Charges(const ResidencyOptions& options, const ResidencyParts& parts, BlockTable* table,
                 const os::Atomic<bool>* evict)
    : chunk_bytes_(parts.addresses->chunk_bytes()),
      table_(table),
      evict_(evict),
      share_(parts.share),
      host_(parts.host),
      own_capacity_(parts.capacity != nullptr ? nullptr
                                              : std::make_unique<SharedCapacity>(parts.host, parts.disk)),
      capacity_(parts.capacity != nullptr ? parts.capacity : own_capacity_.get()),
      chunks_(options.largest_handle),
      budget_{.budget = options.budget_bytes,
              .external_share = options.external_share_bytes,
              .reserve = options.reserve_bytes,
              .cap = options.cap_bytes,
              .share = parts.share == nullptr ? UINT64_MAX : 0} {
  RestoreTarget(TableLock(*table_));
}

// ---- Chunks and the budget for them.

void Charges::RestoreTarget(const TableLock& lock) {
  lock.Covers(*table_);
  lowered_at_ = 0;
  lowered_for_driver_ = false;
  chunks_.set_target(budget_.ChunkTarget() / chunk_bytes_);
  table_->changed.NotifyAll();  // a claim may fit now
}

bool Charges::LowerTarget(const TableLock& lock) {
  lock.Covers(*table_);
  chunks_.LowerTarget();
  lowered_at_ = os::Clock::System()->NowNanos();
  // While the driver has little memory, each attempt to get more ends here, about once a second.
  const uint64_t bytes = chunks_.target() * chunk_bytes_;
  const uint64_t part = budget_.Budget() / kLinesPerBudget;
  if (least_reported_bytes_ < part || bytes > least_reported_bytes_ - part) return false;
  least_reported_bytes_ = bytes;
  return true;
}

void Charges::LowerTargetTo(const TableLock& lock, uint64_t bytes) {
  lock.Covers(*table_);
  chunks_.set_target(std::min(chunks_.target(), bytes / chunk_bytes_));
  lowered_at_ = os::Clock::System()->NowNanos();
  lowered_for_driver_ = true;
}

void Charges::LimitByFree(const TableLock& lock, uint64_t free_bytes) {
  lock.Covers(*table_);
  budget_.device_limit = chunks_.created() * chunk_bytes_ + free_bytes;
  if (!device_limits(lock)) budget_.device_limit = UINT64_MAX;
  RestoreTarget(lock);
}

void Charges::GrowForLimit(TableLock* lock, uint64_t GpuBudget::*limit, uint64_t bytes) {
  GpuBudget limited = budget_;
  limited.*limit = bytes;
  const Charge below = ChargeOf(*lock, 0).With(limited.ChunkTarget() / chunk_bytes_ * chunk_bytes_);
  const uint64_t more = evict_->load() ? MoreToGrow(below) : 0;
  if (more == 0) return;
  table_->mu.Unlock();
  capacity_->Grow(more).IgnoreError();  // a failure makes the limit higher
  table_->mu.Lock();
}

// Blocks without a place elsewhere stay, because blocks that leave must be able to come back. Another device
// may take the capacity that was seen; each turn of the loop then leaves more on this one.
void Charges::SetLimit(const TableLock& lock, uint64_t GpuBudget::*limit, uint64_t bytes) {
  budget_.*limit = bytes;
  budget_.lent = std::min(budget_.lent, budget_.Lendable());
  while (evict_->load()) {
    const Charge charge = ChargeOf(lock, 0).With(budget_.ChunkTarget() / chunk_bytes_ * chunk_bytes_);
    if (SPILLWAY_MUTANT(kLimitUnpromised) || RaisePromise(charge)) break;
    const uint64_t in_all = charge.live + charge.Headroom();
    const uint64_t off_gpu = promised_bytes_ + capacity_->UnpromisedNow();
    const uint64_t stays = std::min(charge.live, in_all - std::min(in_all, off_gpu));
    if (stays <= charge.chunk_target || budget_.*limit >= budget_.budget) break;
    budget_.*limit += stays - charge.chunk_target;
  }
}

uint64_t Charges::SetCap(TableLock* lock, uint64_t bytes) {
  lock->Covers(*table_);
  GrowForLimit(lock, &GpuBudget::cap, bytes);
  SetLimit(*lock, &GpuBudget::cap, bytes);
  RestoreTarget(*lock);
  LowerPromise(*lock);
  return budget_.cap;
}

void Charges::PrepareShare(TableLock* lock, uint64_t bytes) {
  lock->Covers(*table_);
  GrowForLimit(lock, &GpuBudget::share, bytes);
}

uint64_t Charges::SetShare(TableLock* lock, uint64_t bytes) {
  lock->Covers(*table_);
  const uint64_t before = std::exchange(budget_.share, bytes);
  if (bytes < before) {
    SetLimit(*lock, &GpuBudget::share, bytes);
    budget_.share = std::min(budget_.share, before);
  }
  RestoreTarget(*lock);
  LowerPromise(*lock);
  return budget_.share;
}

void Charges::AddShareNeed(const TableLock& lock, ShareNeed* need) const {
  lock.Covers(*table_);
  const Charge charge = ChargeOf(lock, 0);
  need->least_bytes = budget_.LeastShareFor(charge.LeastOnGpu());
  need->most_bytes = std::min(budget_.budget, budget_.cap);
  need->wanted_bytes =
      std::min(budget_.ShareFor(charge.live - std::min(charge.live, need->paused_bytes)), need->most_bytes);
  need->taken_bytes = budget_.LeastShareFor(chunks_.created() * chunk_bytes_);
}

uint64_t Charges::ShareThatFits(const TableLock& lock, uint64_t bytes) const {
  lock.Covers(*table_);
  const uint64_t most = std::min(budget_.budget, budget_.cap);
  uint64_t needed = budget_.LeastShareFor(bytes);
  // A launch that needs more than any share waits for the largest one before a part of it is reached.
  if (needed > most && needed <= most + reachable_bytes(lock)) needed = most;
  // A job whose blocks may not leave waits for nobody: two such jobs would wait for each other.
  const bool helps = evict_->load() && needed > budget_.share && needed <= most;
  return helps ? needed : 0;
}

uint64_t Charges::MoreToGrow(const Charge& charge) const {
  const uint64_t beyond = charge.BeyondGpu();
  return beyond <= promised_bytes_ + capacity_->UnpromisedNow() ? 0 : beyond - promised_bytes_;
}

bool Charges::RaisePromise(const Charge& charge) {
  const uint64_t beyond = std::max(promised_bytes_, charge.BeyondGpu());
  if (!capacity_->Change(promised_bytes_, beyond)) return false;
  promised_bytes_ = beyond;
  return true;
}

uint64_t Charges::PromisePause(const TableLock& lock, uint64_t bytes) {
  lock.Covers(*table_);
  if (SPILLWAY_MUTANT(kPauseUnpromised)) return 0;
  Charge charge = ChargeOf(lock, 0);
  charge.paused += bytes;
  return RaisePromise(charge) ? 0 : std::max<uint64_t>(1, charge.BeyondGpu() - promised_bytes_);
}

bool Charges::Lend(const TableLock& lock, uint64_t chunks) {
  lock.Covers(*table_);
  const uint64_t lent = budget_.LentFor(chunks * chunk_bytes_);
  // The present loan was not enough: the device has less.
  if (lent > budget_.Lendable() || lent <= budget_.lent) return false;
  budget_.lent = lent;
  peak_lent_reserve_ = std::max(peak_lent_reserve_, budget_.LentReserve());
  RestoreTarget(lock);
  return true;
}

void Charges::ReturnLent(const TableLock& lock) {
  lock.Covers(*table_);
  Charge charge = ChargeOf(lock, 0);
  const uint64_t needed = evict_->load() ? charge.LeastOnGpu() : charge.live;
  const uint64_t lent = budget_.LentFor(needed);
  if (lent >= budget_.lent) return;
  const uint64_t before = std::exchange(budget_.lent, lent);
  const uint64_t target = budget_.ChunkTarget() / chunk_bytes_;
  charge.chunk_target = target * chunk_bytes_;
  if (!RaisePromise(charge)) {
    budget_.lent = before;
    return;
  }
  // A target that was lowered for the driver stays lower.
  chunks_.set_target(std::min(chunks_.target(), target));
  table_->changed.NotifyAll();
}

uint64_t Charges::NeededOnGpu(const Charge& charge, bool tiers_grow) const {
  if (!evict_->load()) return charge.live;
  const uint64_t in_all = charge.live + charge.Headroom();
  const uint64_t off_gpu = tiers_grow ? in_all : promised_bytes_ + capacity_->UnpromisedNow();
  return std::max(charge.LeastOnGpu(), std::min(charge.live, in_all - std::min(in_all, off_gpu)));
}

bool Charges::LendFor(const TableLock& lock, const Charge& charge, bool tiers_grow) {
  lock.Covers(*table_);
  return Lend(lock, (NeededOnGpu(charge, tiers_grow) + chunk_bytes_ - 1) / chunk_bytes_);
}

uint64_t Charges::LeastBytes(const TableLock& lock) const {
  lock.Covers(*table_);
  const Charge charge = ChargeOf(lock, 0);
  return charge.pinned + charge.LargestLaunch();
}

void Charges::RecordPeak(const TableLock& lock) {
  lock.Covers(*table_);
  peak_device_bytes_ = std::max(peak_device_bytes_, chunks_.created() * chunk_bytes_ + budget_.external);
  peak_reserved_chunks_ = std::max(peak_reserved_chunks_, ReservedChunks(lock));
}

uint64_t Charges::BackedChunks(const TableLock& lock) const {
  lock.Covers(*table_);
  uint64_t backed = 0;
  for (const BlockState state : {BlockState::kResident, BlockState::kEvicting, BlockState::kFaulting})
    backed += table_->ChunksLocked(lock, state);
  // Extents that are just being mapped are in none of these lists.
  return backed - std::min(backed, table_->reached_extents);
}

void Charges::AddExternal(const TableLock& lock, int64_t delta) {
  lock.Covers(*table_);
  const auto less = static_cast<uint64_t>(-std::min<int64_t>(delta, 0));
  const uint64_t external = budget_.external - std::min(budget_.external, less);
  budget_.SetExternal(external + static_cast<uint64_t>(std::max<int64_t>(delta, 0)), budget_.external_coming);
  RestoreTarget(lock);
  RecordPeak(lock);
}

void Charges::BeginExternal(const TableLock& lock, uint64_t bytes) {
  lock.Covers(*table_);
  budget_.SetExternal(budget_.external, budget_.external_coming + bytes);
  RestoreTarget(lock);
}

void Charges::EndExternal(const TableLock& lock, uint64_t bytes, bool failed) {
  lock.Covers(*table_);
  budget_.SetExternal(budget_.external, budget_.external_coming - std::min(budget_.external_coming, bytes));
  // After a success the target stays as it is until AddExternal has counted the bytes.
  if (failed) RestoreTarget(lock);
}

// ---- Charging: a block is handed out only if GPU, host and disk together could hold it.

void Charges::Cancel(const TableLock& lock, uint64_t chunks) {
  lock.Covers(*table_);
  begun_chunks_ -= chunks;
  live_chunks_ -= chunks;
  if (budget_.lent != 0) ReturnLent(lock);
  LowerPromise(lock);
}

void Charges::LowerPromise(const TableLock& lock) {
  lock.Covers(*table_);
  if (promised_bytes_ == 0) return;
  const uint64_t beyond = ChargeOf(lock, 0).BeyondGpu();
  if (beyond >= promised_bytes_) return;
  capacity_->Change(promised_bytes_, beyond);
  promised_bytes_ = beyond;
}

bool Charges::LaunchFits(const TableLock& lock) {
  lock.Covers(*table_);
  const Charge charge = ChargeOf(lock, 0);
  return charge.LaunchFits() || Lend(lock, (charge.pinned + charge.LargestLaunch()) / chunk_bytes_);
}

Charge Charges::ChargeOf(const TableLock& lock, uint64_t more_chunks) const {
  Charge charge;
  charge.live = (live_chunks_ + more_chunks) * chunk_bytes_;
  charge.largest_block = std::max<uint64_t>(table_->LargestUnpinnedLocked(lock), more_chunks) * chunk_bytes_;
  charge.largest_set = table_->LaunchSetsLocked(lock).largest_movable_bytes();
  charge.pinned = table_->PinnedChunksLocked(lock) * chunk_bytes_;
  charge.paused = table_->PausedChunksLocked(lock) * chunk_bytes_;
  charge.chunk_target = chunks_.target() * chunk_bytes_;
  charge.reachable = reachable_bytes(lock);
  if (SPILLWAY_MUTANT(kNoHeadroom)) charge.largest_set = charge.largest_block = 0;
  return charge;
}

absl::Status Charges::Promise(const TableLock& lock, uint64_t chunks, bool tiers_grow,
                              uint64_t* lacking_bytes) {
  *lacking_bytes = 0;
  if (FitsGpuWith(chunks)) return absl::OkStatus();
  Charge charge = ChargeOf(lock, chunks);
  if (lowered_for_driver_ && !charge.LaunchFits()) {  // the memory given up for the driver is needed here
    RestoreTarget(lock);
    charge = ChargeOf(lock, chunks);
  }
  const auto fits = [&] { return charge.FitsGpu() || (evict_->load() && charge.LaunchFits()); };
  const auto promises = [&] {
    lock.Covers(*table_);
    if (!capacity_->Change(promised_bytes_, charge.BeyondGpu())) return false;
    promised_bytes_ = charge.BeyondGpu();
    return true;
  };
  if (!fits() && LendFor(lock, charge, /*tiers_grow=*/true)) charge = ChargeOf(lock, chunks);
  if (fits()) {
    if (promises()) return absl::OkStatus();
    if (!tiers_grow && LendFor(lock, charge, tiers_grow)) {
      charge = ChargeOf(lock, chunks);
      if (promises()) return absl::OkStatus();
    }
    *lacking_bytes = charge.BeyondGpu() - promised_bytes_;
  }
  if (budget_.lent != 0 && *lacking_bytes == 0) ReturnLent(lock);
  return RefusalOf(charge, capacity_->promised_bytes() - promised_bytes_);
}

absl::Status Charges::PromiseAndGrow(TableLock* lock, uint64_t chunks,
                                     absl::FunctionRef<absl::Status()> serving) {
  // Another device may take the capacity that grew for this one, so it grows again, within a bound.
  constexpr int kMaxGrowths = 100;
  uint64_t lacking = 0;
  for (int growths = 0;; ++growths) {
    absl::Status status = Promise(*lock, chunks, /*tiers_grow=*/true, &lacking);
    SPILLWAY_DELAY_POINT("charges.promised");
    if (status.ok() || lacking == 0 || growths == kMaxGrowths) return status;
    // The tiers may have become as large as they can since the promise failed.
    if (!capacity_->CanGrow()) return Promise(*lock, chunks, /*tiers_grow=*/false, &lacking);
    // The file system and the driver take their time to grow the tiers, so the lock is released meanwhile.
    table_->mu.Unlock();
    const absl::Status grown = capacity_->Grow(lacking);
    table_->mu.Lock();
    if (absl::Status ended = serving(); !ended.ok()) return ended;
    if (absl::IsDeadlineExceeded(grown)) return grown;
    if (!grown.ok()) {
      // A block may have been freed meanwhile.
      status = Promise(*lock, chunks, /*tiers_grow=*/false, &lacking);
      if (status.ok()) return status;
      return WithText(status, std::string(status.message()) + " (" + std::string(grown.message()) + ")");
    }
  }
}

absl::Status Charges::PromiseOnShare(TableLock* lock, uint64_t chunks,
                                     absl::FunctionRef<absl::Status()> serving) {
  const auto charge_of_all = [&] {
    lock->Covers(*table_);
    return ChargeOf(*lock, chunks);
  };
  const auto without_lock = [&](auto call) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    table_->mu.Unlock();
    auto result = call();
    table_->mu.Lock();
    return result;
  };
  const Charge charge = charge_of_all();
  if (const uint64_t wanted = budget_.ShareFor(charge.live - charge.paused); wanted > budget_.share)
    without_lock([&] { return share_->Grow(wanted), true; });
  for (;;) {
    SPILLWAY_RETURN_IF_ERROR(serving());
    absl::Status status = PromiseAndGrow(lock, chunks, serving);
    const uint64_t share = ShareThatFits(*lock, NeededOnGpu(charge_of_all(), /*tiers_grow=*/false));
    if (status.ok() || share == 0 || !absl::IsResourceExhausted(status)) return status;
    const auto name = [&] { return "an allocation of " + os::BytesText(chunks * chunk_bytes_); };
    SPILLWAY_RETURN_IF_ERROR(without_lock([&] { return share_->Await(share, name); }));
  }
}

// ---- Reports.

Charges::Metrics Charges::metrics(const TableLock& lock) const {
  lock.Covers(*table_);
  Metrics metrics;
  metrics.target_bytes = chunks_.target() * chunk_bytes_;
  const uint64_t allowed = budget_.BudgetTarget() / chunk_bytes_ * chunk_bytes_;
  metrics.most_budget_bytes = budget_.budget + peak_lent_reserve_;
  metrics.whole_bytes = budget_.budget + budget_.reserve;
  metrics.budget_bytes = budget_.Budget() + budget_.LentReserve();
  metrics.own_limit_bytes = Capped() ? metrics.budget_bytes : 0;
  metrics.share_bytes = share_ == nullptr ? 0 : budget_.share;
  metrics.budget_in_force_bytes = metrics.budget_bytes - (allowed - std::min(allowed, metrics.target_bytes));
  metrics.chunk_bytes = chunks_.created() * chunk_bytes_;
  metrics.peak_chunk_bytes = chunks_.peak_created() * chunk_bytes_;
  metrics.live_bytes = live_chunks_ * chunk_bytes_;
  metrics.requested_bytes = requested_bytes_;
  metrics.peak_live_bytes = peak_live_chunks_ * chunk_bytes_;
  metrics.peak_requested_bytes = peak_requested_bytes_;
  metrics.peak_device_bytes = peak_device_bytes_;
  metrics.reserved_bytes = ReservedChunks(lock) * chunk_bytes_;
  metrics.peak_reserved_bytes = std::max(peak_reserved_chunks_ * chunk_bytes_, metrics.reserved_bytes);
  metrics.external_bytes = budget_.external;
  metrics.least_budget_bytes = (evict_->load() ? LeastBytes(lock) : metrics.live_bytes) + budget_.external;
  metrics.promised_bytes = promised_bytes_;
  return metrics;
}

void Charges::CheckInvariants(const TableLock& lock, uint64_t live, uint64_t blocks, uint64_t backing) const {
  lock.Covers(*table_);
  SPILLWAY_CHECK(live + begun_chunks_ == live_chunks_);
  SPILLWAY_CHECK(blocks == live_blocks_);
  // Chunks between owners (a claim creating, a release under way) are in neither sum.
  SPILLWAY_CHECK(backing + chunks_.free() <= chunks_.created());
}

}  // namespace spillway::allocator
