#include "allocator/residency/plan/plan_copies.h"

#include <algorithm>

namespace spillway::allocator {
namespace {

constexpr size_t kMostUnderWay = 2;
// A gap of unknown length is taken to be long enough from so many launches on.
constexpr policy::LaunchIndex kLaunchesOfAGap = 8;
// Entries that one step looks at: those behind are wanted later, and their turn comes as these start or go.
constexpr int kMostLooks = 128;

}  // namespace

void PlanCopies::Reset() {
  waiting_.clear();
  under_way_.clear();
}

void PlanCopies::Add(BlockId block, policy::LaunchIndex wanted, policy::PlanTier tier) {
  waiting_.insert({wanted, block.raw(), tier});
}

bool PlanCopies::LongEnough(const Block& block, policy::PlanTier tier, const Gap& gap) const {
  const double rate = core_->lane(tier == policy::PlanTier::kDisk ? Lane::kDiskOut : Lane::kHostOut).rate();
  if (gap.nanos == 0 || rate == 0) return gap.launches >= kLaunchesOfAGap;
  const double nanos = static_cast<double>(Core::BytesOfCopy(block)) / rate * 1e9;
  return static_cast<double>(gap.nanos) > 1.5 * nanos;
}

bool PlanCopies::Step(policy::LaunchIndex gpu, const GapOf& gap_of) {
  const TableLock lock(core_->table);
  // One that a launch has taken back waits for the next gap.
  std::erase_if(under_way_, [&](const Entry& entry) {
    lock.Covers(core_->table);
    const Block& block = core_->table.at(BlockId::FromRaw(entry.block));
    if (block.eviction.job != nullptr) return false;
    if (block.state == BlockState::kResident && block.copies.copy_homes.empty()) waiting_.insert(entry);
    return true;
  });
  bool progress = false;
  int looks = 0;
  for (auto it = waiting_.begin();
       it != waiting_.end() && under_way_.size() < kMostUnderWay && looks < kMostLooks; ++looks) {
    Block& block = core_->table.at(BlockId::FromRaw(it->block));
    if (it->wanted <= gpu || !block.live()) {
      it = waiting_.erase(it);  // it leaves with a transfer, or is gone
      continue;
    }
    const bool idle = block.state == BlockState::kResident && block.pins == 0 && block.held_reasons == 0 &&
                      block.eviction.job == nullptr && !block.memory.mapping && core_->MayLeave(block);
    if (!idle || !core_->evict.load() || !LongEnough(block, it->tier, gap_of(block))) {
      ++it;
      continue;
    }
    if (evictor_->CopyOutLocked(lock, &block, it->tier)) {
      under_way_.push_back(*it);
      progress = true;
    }
    it = waiting_.erase(it);
  }
  return progress;
}

}  // namespace spillway::allocator
