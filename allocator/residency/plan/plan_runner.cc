#include "allocator/residency/plan/plan_runner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "allocator/residency/transfer/mapping.h"
#include "io/os/clock.h"

namespace spillway::allocator {
namespace {

using policy::LaunchIndex;
using policy::PlanBlockView;
using policy::PlanMove;
using policy::PlanTier;

// Copies from host memory that are enqueued at a time: as much as a fast link moves while the device's thread
// sleeps.
constexpr uint64_t kHostBytesUnderWay = 64 << 20;

// Time until a failed fetch is tried again. Each try takes the driver's locks.
constexpr int64_t kPauseAfterFailureNanos = 10'000'000;

}  // namespace

PlanRunner::PlanRunner(Core* core, Charges* charges, const LaunchLog* log, Evictor* evictor, Faulter* faulter)
    : core_(core), charges_(charges), log_(log), evictor_(evictor), faulter_(faulter), cursor_(this) {}

void PlanRunner::Set(std::shared_ptr<const policy::MigrationPlan> plan) {
  std::unique_ptr<const PlanThrottle::Table> table =
      plan == nullptr || plan->hints ? nullptr : PlanThrottle::MakeTable(*plan);
  os::MutexLock lock(&mu_);
  throttle_.Set(std::move(table));
  next_ = std::move(plan);
  changed_ = true;
}

void PlanRunner::Adopt() {
  std::shared_ptr<const policy::MigrationPlan> plan;
  {
    os::MutexLock lock(&mu_);
    if (!changed_) return;
    changed_ = false;
    plan = std::move(next_);
    next_ = nullptr;
    ++plan_number_;
    throttle_.FreeRetired();
  }
  FollowGpu();
  hints_ = plan != nullptr && plan->hints;
  cursor_.Reset(std::move(plan), gpu_);
}

bool PlanRunner::Poll(bool launch_waits) {
  Adopt();
  if (!cursor_.active()) return false;
  FollowGpu();
  return cursor_.Poll(gpu_, launch_waits);
}

void PlanRunner::RecordUnplannedLocked(const TableLock& lock, const Block& block) {
  lock.Covers(core_->table);
  cursor_.RecordUnplanned(block.id.raw(), block.chunks * core_->chunk_bytes, gpu_);
}

// ---- Where the GPU is.

void PlanRunner::FollowGpu() {
  const LaunchIndex launched = log_->count();
  if (launched - std::min(gpu_, launched) >= LaunchLog::kRing) gpu_ = launched - LaunchLog::kRing + 1;
  do {
    while (log_->Completed(gpu_)) ++gpu_;
  } while (PassLongLaunch());
}

// A launch that lasts on its stream (a collective, a copy of the next batch) does not show how far the other
// streams are. They are past it when the next launch on another stream has completed. This is safe, because
// whatever moves a block also checks the block's uses.
bool PlanRunner::PassLongLaunch() {
  const StreamIndex stream = log_->ValueOf(gpu_).stream;
  if (stream == kNoStream) return false;
  LaunchIndex next = gpu_ + 1;
  while (next - gpu_ < LaunchLog::kScannedBack && log_->ValueOf(next).stream == stream) ++next;
  const StreamIndex other = log_->ValueOf(next).stream;
  if (other == kNoStream || other == stream || !log_->Completed(next)) return false;
  gpu_ = next + 1;
  return true;
}

// ---- Where blocks are, and moving them.

PlanBlockView PlanRunner::ViewOfLocked(const TableLock& lock, const Block& block) const {
  lock.Covers(core_->table);
  PlanBlockView view;
  view.live = block.live();
  view.bytes = block.chunks * core_->chunk_bytes;
  view.copy_bytes = Core::BytesOfCopy(block);
  view.free_bytes = charges_->chunks(lock).available() * core_->chunk_bytes;
  // The reserve that is kept without a plan is for the needs of launches, not for fetches ahead.
  if (hints_) view.free_bytes -= std::min(view.free_bytes, core_->free_reserve_bytes.load());
  view.used = block.gate.last_use.load();
  view.copied = !block.copies.copy_homes.empty();
  if (block.state == BlockState::kSpilled) {
    view.place = PlanBlockView::Place::kAway;
    view.may_return = !block.paused() && block.MayBeFetched(os::Clock::System()->NowNanos());
    const bool on_disk = std::ranges::any_of(block.copies.homes, &ExtentHome::on_disk);
    view.tier = on_disk ? PlanTier::kDisk : PlanTier::kHost;
  } else if (block.state == BlockState::kFaulting && block.fetch.job != nullptr) {
    view.place = PlanBlockView::Place::kArriving;
  } else if (block.state == BlockState::kEvicting) {
    view.place = PlanBlockView::Place::kLeaving;
  } else if (block.eviction.job != nullptr) {
    view.place = PlanBlockView::Place::kDraining;
  } else if (block.state == BlockState::kResident) {
    view.place = PlanBlockView::Place::kOnGpu;
    view.may_leave = core_->evict.load() && block.pins == 0 && block.pin_reasons == 0 &&
                     !block.memory.mapping && core_->MayLeave(block);
    view.may_copy = view.may_leave;
  }
  return view;
}

bool PlanRunner::Visit(policy::PlanBlock id, PlanTier tier,
                       absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) {
  Block* block = nullptr;
  {
    TableLock lock(core_->table);
    block = &core_->table.at(BlockId::FromRaw(id));
    switch (decide(ViewOfLocked(lock, *block))) {
      case PlanMove::kNothing: return false;
      case PlanMove::kEvict: evictor_->StartLocked(lock, {block}, tier); return true;
      case PlanMove::kCopyOut: return evictor_->CopyOutLocked(lock, block, tier);
      case PlanMove::kFetch:
        if (!BeginFetchLocked(&lock, block)) return false;
    }
  }
  ++core_->counters.prefetches;
  if (faulter_->Start(block).ok()) return true;
  // The block is spilled again, and stays in the plan's queue.
  const TableLock lock(core_->table);
  block->fetch.again_at = os::Clock::System()->NowNanos() + kPauseAfterFailureNanos;
  return false;
}

// Takes no chunks by an eviction: the plan makes its headroom by its own ops.
bool PlanRunner::BeginFetchLocked(TableLock* lock, Block* block) {
  std::vector<ChunkHandle> handles;
  if (!TakeChunksLocked(core_, charges_, lock, {block->chunks}, &handles)) return false;
  // TakeChunksLocked may have released the lock.
  const PlanBlockView view = ViewOfLocked(*lock, *block);
  const bool away = view.live && view.place == PlanBlockView::Place::kAway && view.may_return;
  if (away && ChunksOf(handles) == block->chunks) {
    faulter_->BeginLocked(*lock, block, std::move(handles), /*prefetch=*/true);
    return true;
  }
  charges_->chunks(*lock).Give(&handles);
  return false;
}

// A queue is busy when it has work until the device's thread polls again. More is not started, since a fetch
// takes its chunks when it starts.
bool PlanRunner::IsBusy(PlanTier tier, size_t fetches, policy::Bytes bytes) const {
  if (fetches < 2) return false;
  if (tier == PlanTier::kHost) return bytes >= kHostBytesUnderWay;
  return core_->parts.host == nullptr ||
         bytes >= core_->parts.host->Limit(HostUse::kFaultStaging) * core_->chunk_bytes;
}

// A copy out takes longer beside fetches where both directions of the link share its bandwidth.
double PlanRunner::RateOut(PlanTier tier) const {
  if (tier == PlanTier::kDisk) return core_->copy_queue(CopyQueue::kDiskOut).rate();
  const LinkMeter::Rates rates = core_->link.rates();
  return rates.both.out > 0 && core_->link.busy(LinkDirection::kIn) ? rates.both.out : rates.alone.out;
}

}  // namespace spillway::allocator
