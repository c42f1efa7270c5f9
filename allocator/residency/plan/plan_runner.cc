#include "allocator/residency/plan/plan_runner.h"

#include <algorithm>
#include <utility>

namespace spillway::allocator {
namespace {

using policy::LaunchIndex;
using policy::PlanAction;
using policy::PlanStep;

BlockId IdOf(policy::TraceBlock block) { return BlockId::FromRaw(static_cast<uint32_t>(block)); }

}  // namespace

PlanRunner::PlanRunner(Core* core, Charges* charges, const LaunchLog* log, Evictor* evictor, Faulter* faulter)
    : core_(core),
      log_(log),
      evictor_(evictor),
      copies_(core, evictor),
      fetches_(core, charges, log, faulter) {}

void PlanRunner::Set(std::shared_ptr<const policy::MigrationPlan> plan) {
  std::unique_ptr<const PlanPace::Table> table = plan == nullptr ? nullptr : PlanPace::MakeTable(*plan);
  os::MutexLock lock(&mu_);
  pace_.Set(std::move(table));
  next_ = std::move(plan);
  changed_ = true;
}

// ---- Taking a plan over.

void PlanRunner::Adopt() {
  {
    os::MutexLock lock(&mu_);
    if (!changed_) return;
    changed_ = false;
    plan_ = std::move(next_);
    next_ = nullptr;
    ++plan_number_;
    pace_.FreeRetired();
  }
  evictions_ = copy_steps_ = fetch_steps_ = Cursor();
  uses_.clear();
  starts_.clear();
  copies_.Reset();
  FollowGpu();
  fetches_.Reset(plan_, gpu_);
  if (plan_ == nullptr) return;
  for (const PlanStep& step : plan_->steps) {
    if (step.action == PlanAction::kDrop) evictions_.steps.push_back(step);
    // Right before its drop a copy is part of the eviction.
    if (step.action == PlanAction::kCopyOut && step.needed != step.launch && !plan_->expected_bytes.empty()) {
      copy_steps_.steps.push_back(step);
    }
    if (step.action == PlanAction::kFetch) fetch_steps_.steps.push_back(step);
  }
  if (plan_->durations.size() == plan_->period) {
    starts_.push_back(0);
    for (const policy::Nanos duration : plan_->durations) starts_.push_back(starts_.back() + duration);
  }
  for (uint32_t position = 0; position < plan_->period; ++position) {
    const policy::ExpectedLaunch& launch = plan_->launches[position];
    for (uint32_t i = 0; i < launch.use_count; ++i) {
      uses_[static_cast<uint32_t>(plan_->uses[launch.first_use + i].block)].push_back(position);
    }
  }
  // Cursors start at the current place, or at the plan's start when that was less than a period ago: what was launched
  // meanwhile may still be of use.
  LaunchIndex now = std::max(log_->count(), plan_->start);
  if (now - plan_->start < plan_->period) now = plan_->start;
  const uint32_t position = plan_->PositionOf(now);
  for (Cursor* cursor : {&evictions_, &copy_steps_, &fetch_steps_}) {
    std::ranges::stable_sort(cursor->steps, {}, &PlanStep::launch);
    cursor->lap = (now - plan_->start) / plan_->period;
    cursor->at =
        std::ranges::lower_bound(cursor->steps, position, {}, &PlanStep::launch) - cursor->steps.begin();
    if (cursor->at == cursor->steps.size()) {
      cursor->at = 0;
      ++cursor->lap;
    }
  }
  if (!plan_->expected_bytes.empty()) AddWhatIsAway();
}

// What is away when the plan begins comes back for its next use, by whatever it left.
void PlanRunner::AddWhatIsAway() {
  const TableLock lock(core_->table);
  const LaunchIndex now = log_->count();
  for (const auto& [id, positions] : uses_) {
    const Block& block = core_->table.at(BlockId::FromRaw(id));
    if (block.state != BlockState::kSpilled && block.state != BlockState::kEvicting) continue;
    const LaunchIndex use = NextUse(id, now);
    fetches_.Add(block.id, use, use);
  }
}

// ---- Where the GPU is.

LaunchIndex PlanRunner::IndexOf(uint64_t lap, uint32_t position) const {
  return plan_->start + lap * plan_->period + position;
}

void PlanRunner::FollowGpu() {
  const LaunchIndex launched = log_->count();
  if (launched - std::min(gpu_, launched) >= LaunchLog::kRing) gpu_ = launched - LaunchLog::kRing + 1;
  while (log_->Completed(gpu_)) ++gpu_;
}

LaunchIndex PlanRunner::NextUse(uint32_t block, LaunchIndex from) const {
  const auto found = uses_.find(block);
  if (found == uses_.end()) return policy::kNever;
  from = std::max(from, plan_->start);
  const uint64_t lap = (from - plan_->start) / plan_->period;
  const auto next = std::ranges::lower_bound(found->second, plan_->PositionOf(from));
  return next != found->second.end() ? IndexOf(lap, *next) : IndexOf(lap + 1, found->second.front());
}

LaunchIndex PlanRunner::Now() const {
  const LaunchIndex launches = log_->count();
  return plan_ == nullptr ? launches : std::max(launches, plan_->start);
}

// ---- Moving.

bool PlanRunner::Step(bool room_wanted) {
  Adopt();
  if (plan_ == nullptr) return false;
  FollowGpu();
  bool progress = RunEvictions();
  progress |= RunCopies();
  QueueFetches();
  if (!room_wanted) progress |= fetches_.Step(gpu_);
  return progress;
}

bool PlanRunner::EvictionsToCome() const {
  return plan_ != nullptr && !evictions_.steps.empty() &&
         IndexOf(evictions_.lap, evictions_.step().launch) < log_->count();
}

bool PlanRunner::RunEvictions() {
  bool progress = false;
  for (size_t tried = 0; tried < evictions_.steps.size(); ++tried, evictions_.Next()) {
    const PlanStep& step = evictions_.step();
    const LaunchIndex index = IndexOf(evictions_.lap, step.launch);
    if (!log_->Completed(index)) break;
    const TableLock lock(core_->table);
    Block& block = core_->table.at(IdOf(step.block));
    const bool idle = block.state == BlockState::kResident && block.pins == 0 && block.held_reasons == 0 &&
                      block.eviction.job == nullptr && !block.memory.mapping && core_->MayLeave(block);
    // Used by a later launch already: the host has run past the whole absence.
    if (!idle || !core_->evict.load() || block.gate.last_use.load() > index + 1) continue;
    // So late that it would not be away for half of the time.
    if (2 * (gpu_ - std::min(gpu_, index)) > NextUse(block.id.raw(), index + 1) - index) continue;
    evictor_->StartLocked(lock, {&block}, step.tier);
    progress = true;
  }
  return progress;
}

// Copies of what stays for now, as its content becomes final.
bool PlanRunner::RunCopies() {
  for (size_t tried = 0; tried < copy_steps_.steps.size(); ++tried, copy_steps_.Next()) {
    const PlanStep& step = copy_steps_.step();
    if (IndexOf(copy_steps_.lap, step.launch) >= gpu_) break;
    const LaunchIndex wanted = IndexOf(copy_steps_.lap + (step.needed < step.launch ? 1 : 0), step.needed);
    copies_.Add(IdOf(step.block), wanted, step.tier);
  }
  return copies_.Step(gpu_, [this](const Block& block) { return GapBefore(block); });
}

// From where the host is to the block's next use.
PlanCopies::Gap PlanRunner::GapBefore(const Block& block) const {
  const LaunchIndex now = std::max(log_->count(), plan_->start);
  const LaunchIndex use = NextUse(block.id.raw(), now);
  if (use == policy::kNever) return {policy::kNever, 0};
  if (starts_.empty()) return {use - now, 0};
  const auto laps =
      static_cast<policy::Nanos>((use - plan_->start) / plan_->period - (now - plan_->start) / plan_->period);
  return {use - now,
          laps * starts_.back() + starts_[plan_->PositionOf(use)] - starts_[plan_->PositionOf(now)]};
}

// Those whose earliest start has come.
void PlanRunner::QueueFetches() {
  for (size_t tried = 0; tried < fetch_steps_.steps.size(); ++tried, fetch_steps_.Next()) {
    const PlanStep& step = fetch_steps_.step();
    const LaunchIndex start = IndexOf(fetch_steps_.lap, step.launch);
    if (start > std::max(gpu_, plan_->start)) break;
    const LaunchIndex due = IndexOf(fetch_steps_.lap + (step.needed < step.launch ? 1 : 0), step.needed);
    // Due at step.needed, which may lie before the use itself: until that one has come, late is better than never.
    const LaunchIndex use = NextUse(static_cast<uint32_t>(step.block), due);
    if (use != policy::kNever) fetches_.Add(IdOf(step.block), due, use);
  }
}

void PlanRunner::NoteUnplannedLocked(const TableLock& lock, const Block& block) {
  lock.Covers(core_->table);
  if (plan_ == nullptr) return;
  const LaunchIndex use = NextUse(block.id.raw(), log_->count());
  if (use != policy::kNever) fetches_.NoteUnplanned(block, gpu_, use);
}

}  // namespace spillway::allocator
