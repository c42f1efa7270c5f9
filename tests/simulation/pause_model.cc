#include "tests/simulation/pause_model.h"

#include <algorithm>
#include <string>

#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {

using allocator::Block;
using allocator::BlockState;
using allocator::PausedBy;
using allocator::PauseScope;
using allocator::PauseStats;

// Idleness keeps all bytes.
bool Drops(const PauseScope& scope) { return scope.by != PausedBy::kIdle; }

constexpr uint8_t BitOf(PausedBy by) { return static_cast<uint8_t>(by); }

// Looks of the model are no steps of its job.
class NoSwitches {
 public:
  NoSwitches() { scheduler().HoldSwitches(); }
  ~NoSwitches() { scheduler().AllowSwitches(); }
};

}  // namespace

Block& PauseModel::RecordOf(CUdeviceptr address) const {
  return world_.core()->table.at(world_.addresses().Find(address));
}

void PauseModel::OnAllocate(CUdeviceptr address, allocator::BlockRegion region, uint64_t since) {
  Entry entry;
  entry.region = region;
  entry.born = ++changes_;
  // Handed out while everything is paused from outside.
  if (outside_since_ != 0 && since >= outside_since_) entry.paused = BitOf(PausedBy::kOutside);
  if (outside_touches_) entry.touched = BitOf(PausedBy::kOutside);
  for (const PauseScope* scope : under_way_) {
    if (Covers(*scope, entry)) entry.touched |= BitOf(scope->by);
  }
  // One may have come and gone since the block was handed out.
  if (since + 1 != entry.born) entry.touched |= BitOf(PausedBy::kJob);
  blocks_[address] = entry;
}

void PauseModel::Pause(const PauseScope& scope) {
  const uint64_t since = ++changes_;
  for (auto& [address, entry] : blocks_) {
    if (!Covers(scope, entry)) continue;
    entry.touched |= BitOf(scope.by);
    entry.drops += Drops(scope) ? 1 : 0;
  }
  outside_touches_ |= scope.tag == 0 && scope.by == PausedBy::kOutside;
  under_way_.push_back(&scope);
  PauseStats stats;
  const absl::Status status = world_.residency().Pause(scope, &stats);
  std::erase(under_way_, &scope);
  ++changes_;
  if (!status.ok()) OnTakenBack(scope);
  for (auto& [address, entry] : blocks_) entry.drops += Drops(scope) && Covers(scope, entry) ? 1 : 0;
  if (status.ok()) {
    ++pauses_;
    OnPaused(scope, stats, since);
  } else if (!may_fail_ && !absl::IsResourceExhausted(status)) {
    scheduler().Fail("a pause returns " + status.ToString());
  }
  world_.residency().CheckInvariants();
}

// A pause that has failed may have resumed all that it covers.
void PauseModel::OnTakenBack(const PauseScope& scope) {
  last_resume_ = changes_;
  for (auto& [address, entry] : blocks_) {
    if (!Covers(scope, entry)) continue;
    entry.paused &= static_cast<uint8_t>(~BitOf(scope.by));
    entry.away &= entry.paused != 0;
  }
}

void PauseModel::OnPaused(const PauseScope& scope, const PauseStats& stats, uint64_t since) {
  // By other tasks meanwhile, or by a pause of theirs that fails: what is paused is not known.
  if (resuming_ > 0 || last_resume_ > since || (may_fail_ && !under_way_.empty())) return;
  const NoSwitches now;
  if (scope.tag == 0 && scope.by == PausedBy::kOutside) outside_since_ = changes_;
  uint64_t there = 0;
  for (auto& [address, entry] : blocks_) {
    if (!Covers(scope, entry) || entry.born > since) continue;
    // Idleness leaves alone what somebody has paused, or is about to.
    if (!Drops(scope) && (entry.touched & ~unsigned{BitOf(scope.by)}) != 0) continue;
    entry.paused |= BitOf(scope.by);
    const Block& block = RecordOf(address);
    entry.away = !block.has_chunks();
    if (!entry.away) there += block.chunks * world_.chunk_bytes();
    // What had a pin when the pause began may have left since, with its bytes.
    if (Drops(scope) && stats.pinned_bytes == 0 && entry.away && !entry.region.keep &&
        block.state != BlockState::kEmpty)
      scheduler().Fail("a pause has returned, and bytes that are not kept are kept" + world_.Describe());
  }
  if (there > stats.pinned_bytes + stats.failed_bytes)
    scheduler().Fail("a pause has returned, and a paused block has chunks" + world_.Describe());
  if (scope.tag == 0 && scope.by == PausedBy::kOutside) CheckGivenBack(stats);
  if (stats.failed_bytes > 0 && !may_fail_) CheckFailed(stats);
}

// Memory that was freed or handed out during the pause is given back, too.
void PauseModel::CheckGivenBack(const PauseStats& stats) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const allocator::TableLock lock{allocator::TableLock::AlreadyLocked()};  // nobody else runs
  uint64_t there = 0;
  for (const BlockState state : {BlockState::kResident, BlockState::kCached})
    there += world_.core()->table.ChunksLocked(lock, state) * world_.chunk_bytes();
  if (there > stats.pinned_bytes + stats.failed_bytes)
    scheduler().Fail("a pause of everything has returned, and blocks have chunks" + world_.Describe());
}

// A place was promised for all that is paused. It may be taken by blocks that are charged a place on the GPU
// and were not brought back so far.
void PauseModel::CheckFailed(const PauseStats& stats) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const allocator::TableLock lock{allocator::TableLock::AlreadyLocked()};  // nobody else runs
  allocator::BlockTable& table = world_.core()->table;
  bool others_are_away = false;
  table.ForEachLocked(lock, [&](Block* block) {
    const bool away = !block->copies.homes.empty() || block->state == BlockState::kEvicting;
    others_are_away |= away && !(block->live() && block->paused());
  });
  if (!others_are_away)
    scheduler().Fail("a pause could not copy, without a fault: " + stats.failure + world_.Describe());
}

void PauseModel::Resume(const PauseScope& scope, bool wait) {
  const uint64_t since = ++changes_;
  last_resume_ = since;
  ++resuming_;
  if (scope.tag == 0 && scope.by == PausedBy::kOutside) outside_since_ = 0;
  const unsigned ends = BitOf(scope.by) | BitOf(PausedBy::kIdle);  // who resumes ends idleness, too
  for (auto& [address, entry] : blocks_) {
    if (!Covers(scope, entry)) continue;
    entry.paused &= static_cast<uint8_t>(~ends);
    entry.away &= entry.paused != 0;
  }
  const absl::Status status = world_.residency().Resume(scope, wait);
  if (!status.ok() && !may_fail_) scheduler().Fail("a resume returns " + status.ToString());
  const bool alone = changes_ == since && under_way_.empty();
  if (alone && scope.tag == 0 && scope.by == PausedBy::kOutside) outside_touches_ = false;
  last_resume_ = ++changes_;
  --resuming_;
  for (auto& [address, entry] : blocks_) {
    if (alone && Covers(scope, entry)) entry.touched &= static_cast<uint8_t>(~ends);
  }
  world_.residency().CheckInvariants();
}

bool PauseModel::job_pauses() const {
  return std::ranges::any_of(
      blocks_, [](const auto& block) { return (block.second.touched & BitOf(PausedBy::kJob)) != 0; });
}

bool PauseModel::MayBePaused(CUdeviceptr address) const {
  return (blocks_.at(address).touched & BitOf(PausedBy::kJob)) != 0;
}

bool PauseModel::Dropped(CUdeviceptr address, uint64_t* drops) const {
  const Entry& entry = blocks_.at(address);
  const bool drops_now = std::ranges::any_of(
      under_way_, [&](const PauseScope* scope) { return Drops(*scope) && Covers(*scope, entry); });
  const bool dropped = !entry.region.keep && (drops_now || entry.drops != *drops);
  *drops = entry.drops;
  return dropped;
}

void PauseModel::AtLaunch(CUdeviceptr address) const {
  // After an error of the device launches go to the driver, which answers them with it.
  if (world_.gpu().error() == CUDA_SUCCESS && blocks_.at(address).paused != 0)
    scheduler().Fail("a launch names a block whose pause has returned" + world_.Describe());
}

void PauseModel::CheckAway() const {
  const NoSwitches now;
  for (const auto& [address, entry] : blocks_) {
    if (entry.away && RecordOf(address).has_chunks())
      scheduler().Fail("a paused block has chunks again" + world_.Describe());
  }
}

}  // namespace spillway::simulation
