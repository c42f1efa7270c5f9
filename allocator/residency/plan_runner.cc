#include "allocator/residency/plan_runner.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spillway::allocator {
namespace {

using policy::LaunchIndex;
using policy::PlanBlockView;
using policy::PlanMove;
using policy::PlanTier;

// Copies from host memory that are enqueued at once: what a fast link moves while the device's thread sleeps.
constexpr uint64_t kHostBytesUnderWay = 64 << 20;

}  // namespace

PlanRunner::PlanRunner(Core* core, Evictor* evictor, Faulter* faulter)
    : core_(core), evictor_(evictor), faulter_(faulter), cursor_(this) {}

void PlanRunner::Set(std::shared_ptr<const policy::MigrationPlan> plan) {
  std::unique_ptr<const PlanPace::Table> table = plan == nullptr ? nullptr : PlanPace::MakeTable(*plan);
  os::MutexLock lock(&mu_);
  core_->pace.Set(std::move(table));
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
    core_->pace.FreeRetired();
  }
  FollowGpu();
  cursor_.Reset(std::move(plan), gpu_);
}

bool PlanRunner::Step(bool room_wanted) {
  Adopt();
  if (!cursor_.active()) return false;
  FollowGpu();
  return cursor_.Poll(gpu_, room_wanted);
}

void PlanRunner::NoteUnplannedLocked(const Block& block) {
  core_->table.mu.AssertHeld();
  cursor_.NoteUnplanned(block.id.raw(), block.chunks * core_->chunk_bytes, gpu_);
}

// ---- Where the GPU is.

bool PlanRunner::Completed(LaunchIndex index) {
  const LaunchIndex launched = Launched();
  if (index >= launched) return false;
  if (launched - index >= Core::kLaunchRing) return true;  // 65,536 launches ago
  const uint64_t packed = core_->launch_stamps[index % Core::kLaunchRing].load(std::memory_order_acquire);
  if (packed == 0) return false;  // being written
  const Stamp stamp = Stamp::Unpack(packed);
  if (core_->clock.Completed(stamp)) return true;
  core_->clock.Cover(stamp).IgnoreError();  // asked again at the next step
  return false;
}

void PlanRunner::FollowGpu() {
  const LaunchIndex launched = Launched();
  if (launched - std::min(gpu_, launched) >= Core::kLaunchRing) gpu_ = launched - Core::kLaunchRing + 1;
  while (Completed(gpu_)) ++gpu_;
}

// ---- Where blocks are, and moving them.

PlanBlockView PlanRunner::ViewOfLocked(const Block& block) const {
  core_->table.mu.AssertHeld();
  PlanBlockView view;
  view.live = block.live();
  view.bytes = block.chunks * core_->chunk_bytes;
  view.copy_bytes = Core::BytesOfCopy(block);
  view.free_bytes = core_->chunks.free() * core_->chunk_bytes;
  view.used = block.last_use.load();
  view.copied = !block.copy_homes.empty();
  if (block.state == BlockState::kSpilled) {
    view.place = PlanBlockView::Place::kAway;
    view.may_return = !block.mapping;
    const bool on_disk = std::ranges::any_of(block.homes, [](const ChunkHome& home) { return home.on_disk; });
    view.tier = on_disk ? PlanTier::kDisk : PlanTier::kHost;
  } else if (block.state == BlockState::kFaulting && block.fetch != nullptr) {
    view.place = PlanBlockView::Place::kArriving;
  } else if (block.state == BlockState::kEvicting || block.evict != nullptr) {
    view.place = PlanBlockView::Place::kLeaving;
  } else if (block.state == BlockState::kResident) {
    view.place = PlanBlockView::Place::kOnGpu;
    view.may_leave = core_->evict.load() && block.pins == 0 && block.held_reasons == 0 && !block.mapping &&
                     core_->MayLeave(block);
    view.may_copy = view.may_leave;
  }
  return view;
}

bool PlanRunner::Visit(policy::PlanBlock id, PlanTier tier,
                       absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) {
  Block* block = nullptr;
  {
    os::MutexLock lock(&core_->table.mu);
    block = &core_->table.at(BlockId::FromRaw(id));
    switch (decide(ViewOfLocked(*block))) {
      case PlanMove::kNothing: return false;
      case PlanMove::kEvict: evictor_->StartLocked({block}, tier); return true;
      case PlanMove::kCopyOut: return evictor_->CopyOutLocked(block, tier);
      case PlanMove::kFetch:
        std::vector<ChunkHandle> chunks;
        core_->chunks.TakeFree(block->chunks, &chunks);
        faulter_->BeginLocked(block, std::move(chunks), /*prefetch=*/true);
    }
  }
  ++core_->counters.prefetches;
  faulter_->Start(block).IgnoreError();  // on failure it is spilled again, and the cursor finds it
  return true;
}

// Enough for the queue to have work until the device's thread comes round again, no more: room is taken at the start.
bool PlanRunner::IsBusy(PlanTier tier, size_t fetches, policy::Bytes bytes) const {
  if (fetches < 2) return false;
  if (tier == PlanTier::kHost) return bytes >= kHostBytesUnderWay;
  return core_->parts.host == nullptr ||
         bytes >= core_->parts.host->Limit(HostUse::kFaultStaging) * core_->chunk_bytes;
}

double PlanRunner::RateOut(PlanTier tier) const {
  return core_->lane(tier == PlanTier::kDisk ? Lane::kDiskOut : Lane::kHostOut).rate();
}

}  // namespace spillway::allocator
