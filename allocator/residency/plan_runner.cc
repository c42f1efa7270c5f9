#include "allocator/residency/plan_runner.h"

#include <algorithm>
#include <utility>

namespace spillway::allocator {
namespace {

using policy::LaunchIndex;
using policy::PlanAction;
using policy::PlanStep;

BlockId IdOf(policy::TraceBlock block) { return BlockId::FromRaw(static_cast<uint32_t>(block)); }

}  // namespace

PlanRunner::PlanRunner(Core* core, Evictor* evictor, Faulter* faulter)
    : core_(core), evictor_(evictor), faulter_(faulter) {}

void PlanRunner::Set(std::shared_ptr<const policy::MigrationPlan> plan) {
  active_.store(plan != nullptr, std::memory_order_relaxed);
  os::MutexLock lock(&mu_);
  next_ = std::move(plan);
  changed_ = true;
}

void PlanRunner::Adopt() {
  {
    os::MutexLock lock(&mu_);
    if (!changed_) return;
    changed_ = false;
    plan_ = std::move(next_);
    next_ = nullptr;
  }
  evictions_.clear();
  fetches_.clear();
  uses_.clear();
  if (plan_ == nullptr) return;
  for (const PlanStep& step : plan_->steps) {
    if (step.action == PlanAction::kDrop) evictions_.push_back(step);
    if (step.action == PlanAction::kFetch) fetches_.push_back(step);
  }
  for (uint32_t position = 0; position < plan_->period; ++position) {
    const policy::ExpectedLaunch& launch = plan_->launches[position];
    for (uint32_t i = 0; i < launch.use_count; ++i) {
      uses_[static_cast<uint32_t>(plan_->uses[launch.first_use + i].block)].push_back(position);
    }
  }
  // Cursors start at the current place in the period: what lies behind is for the next time round.
  const LaunchIndex now = std::max(core_->launches.load(), plan_->start);
  evict_lap_ = fetch_lap_ = (now - plan_->start) / plan_->period;
  const uint32_t position = plan_->PositionOf(now);
  evict_at_ = std::find_if(evictions_.begin(), evictions_.end(),
                           [&](const PlanStep& step) { return step.launch >= position; }) -
              evictions_.begin();
  fetch_at_ = std::find_if(fetches_.begin(), fetches_.end(),
                           [&](const PlanStep& step) { return step.launch >= position; }) -
              fetches_.begin();
}

LaunchIndex PlanRunner::IndexOf(uint64_t lap, uint32_t position) const {
  return plan_->start + lap * plan_->period + position;
}

bool PlanRunner::LaunchCompleted(LaunchIndex index) const {
  const LaunchIndex launched = core_->launches.load(std::memory_order_acquire);
  if (index >= launched) return false;
  if (launched - index >= Core::kLaunchRing) return true;  // 65,536 launches ago
  const uint64_t packed = core_->launch_stamps[index % Core::kLaunchRing].load(std::memory_order_acquire);
  if (packed == 0) return false;  // being written
  const Stamp stamp = Stamp::Unpack(packed);
  if (core_->clock.Completed(stamp)) return true;
  core_->clock.Cover(stamp).IgnoreError();  // asked again at the next step
  return false;
}

bool PlanRunner::Step(bool room_wanted) {
  Adopt();
  chunks_wanted_ = 0;
  if (plan_ == nullptr) return false;
  bool progress = RunEvictions();
  if (!room_wanted) progress |= RunFetches();
  return progress;
}

bool PlanRunner::RunEvictions() {
  bool progress = false;
  for (size_t tried = 0; tried < evictions_.size(); ++tried) {
    if (evict_at_ == evictions_.size()) {
      evict_at_ = 0;
      ++evict_lap_;
    }
    const PlanStep& step = evictions_[evict_at_];
    const LaunchIndex index = IndexOf(evict_lap_, step.launch);
    if (!LaunchCompleted(index)) break;
    ++evict_at_;
    os::MutexLock lock(&core_->table.mu);
    Block& block = core_->table.at(IdOf(step.block));
    const bool idle = block.state == BlockState::kResident && block.pins == 0 && block.held_reasons == 0 &&
                      block.evict == nullptr && !block.mapping && core_->MayLeave(block);
    // Used by a later launch already: the host has run past the whole absence.
    if (!idle || !core_->evict.load() || block.last_use.load() > index + 1) continue;
    evictor_->StartLocked({&block});
    progress = true;
  }
  return progress;
}

bool PlanRunner::RunFetches() {
  bool progress = false;
  for (size_t tried = 0; tried < fetches_.size(); ++tried) {
    if (fetch_at_ == fetches_.size()) {
      fetch_at_ = 0;
      ++fetch_lap_;
    }
    const PlanStep& step = fetches_[fetch_at_];
    // Due at step.needed, which may lie before the use itself: until that one has come, late is better than never.
    if (NextUseFrom(step) >= core_->launches.load()) {
      // In order: a fetch whose start has not come, or that does not fit, holds up those behind it.
      const LaunchIndex start = IndexOf(fetch_lap_, step.launch);
      if (start > plan_->start && start > 0 && !LaunchCompleted(start - 1)) break;
      if (!StartFetch(step)) break;
      progress = true;
    }
    ++fetch_at_;
  }
  return progress;
}

// Index of the use that a fetch is for.
LaunchIndex PlanRunner::NextUseFrom(const PlanStep& step) const {
  const uint64_t lap = fetch_lap_ + (step.needed < step.launch ? 1 : 0);
  const auto found = uses_.find(static_cast<uint32_t>(step.block));
  if (found == uses_.end()) return 0;
  const auto next = std::lower_bound(found->second.begin(), found->second.end(), step.needed);
  return next != found->second.end() ? IndexOf(lap, *next) : IndexOf(lap + 1, found->second.front());
}

// False when it must wait for room.
bool PlanRunner::StartFetch(const PlanStep& step) {
  Block* block = nullptr;
  {
    os::MutexLock lock(&core_->table.mu);
    block = &core_->table.at(IdOf(step.block));
    if (block->evict != nullptr && !block->evict->cancelled && block->state == BlockState::kEvicting) {
      return false;  // on its way out, for the absence before: its turn comes when it is out
    }
    if (block->state != BlockState::kSpilled || block->mapping) return true;
    std::vector<ChunkHandle> chunks;
    if (core_->chunks.free() < block->chunks) {
      chunks_wanted_ = block->chunks;
      return false;
    }
    core_->chunks.TakeFree(block->chunks, &chunks);
    faulter_->BeginLocked(block, std::move(chunks), /*prefetch=*/true);
  }
  ++core_->counters.prefetches;
  faulter_->Start(block).IgnoreError();  // on failure it is spilled again, and faults when its launch comes
  return true;
}

uint64_t PlanRunner::DistanceToNextUse(const Block& block) const {
  if (plan_ == nullptr) return policy::kNever;
  const auto found = uses_.find(block.id.raw());
  if (found == uses_.end()) return policy::kNever;
  const LaunchIndex now = std::max(core_->launches.load(), plan_->start);
  const uint32_t position = plan_->PositionOf(now);
  const auto next = std::lower_bound(found->second.begin(), found->second.end(), position);
  if (next != found->second.end()) return *next - position;
  return plan_->period - position + found->second.front();
}

}  // namespace spillway::allocator
