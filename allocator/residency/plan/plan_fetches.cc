#include "allocator/residency/plan/plan_fetches.h"

#include <algorithm>
#include <utility>

namespace spillway::allocator {
namespace {

using policy::LaunchIndex;

// Copies from host memory that are enqueued at once: what a fast link moves while the device's thread sleeps.
constexpr uint64_t kHostBytesUnderWay = 64 << 20;
// Entries that one step looks at: those behind are due later, and their turn comes as these start or go.
constexpr int kMostLooks = 128;

}  // namespace

void PlanFetches::Reset(std::shared_ptr<const policy::MigrationPlan> plan, LaunchIndex now) {
  room_.Reset(std::move(plan), now);
  waiting_.clear();
  under_way_.clear();
  chunks_wanted_ = 0;
}

void PlanFetches::Add(BlockId block, LaunchIndex due, LaunchIndex use) {
  waiting_.insert({due, block.raw(), use});
}

void PlanFetches::NoteUnplanned(const Block& block, LaunchIndex now, LaunchIndex use) {
  room_.Add(now, use, -static_cast<int64_t>(block.chunks * core_->chunk_bytes));
  if (room_.known()) Add(block.id, use, use);
}

bool PlanFetches::Step(LaunchIndex gpu) {
  room_.MoveTo(gpu);
  chunks_wanted_ = 0;
  bool progress = LookAtUnderWay(gpu);
  std::array<bool, kLanes> held_up = {LaneIsFull(kHost), LaneIsFull(kDisk)};
  int looks = 0;
  for (auto it = waiting_.begin();
       it != waiting_.end() && !(held_up[kHost] && held_up[kDisk]) && looks < kMostLooks; ++looks) {
    const Start result = TryStart(*it, gpu, &held_up);
    progress |= result == Start::kStarted;
    it = result == Start::kStarted || result == Start::kGone ? waiting_.erase(it) : std::next(it);
  }
  return progress;
}

// Those that have ended. One that was taken back counts as not there again, and waits for its turn anew.
bool PlanFetches::LookAtUnderWay(LaunchIndex gpu) {
  const TableLock lock(core_->table);
  const size_t before = under_way_.size();
  std::erase_if(under_way_, [&](const UnderWay& one) {
    lock.Covers(core_->table);
    const Block& block = core_->table.at(BlockId::FromRaw(one.entry.block));
    if (block.state == BlockState::kFaulting && block.fetch.job != nullptr) return false;
    if (block.state == BlockState::kSpilled) {
      room_.Add(std::max(one.from, gpu), one.entry.due, -static_cast<int64_t>(one.bytes));
      waiting_.insert(one.entry);
    }
    return true;
  });
  return under_way_.size() != before;
}

// Enough for the lane to have work until the device's thread comes round again, no more: room is taken at the start.
bool PlanFetches::LaneIsFull(Lane lane) const {
  uint64_t bytes = 0;
  size_t count = 0;
  for (const UnderWay& one : under_way_) {
    if (one.lane != lane) continue;
    bytes += one.bytes;
    ++count;
  }
  if (count < 2) return false;
  if (lane == kHost) return bytes >= kHostBytesUnderWay;
  return core_->parts.host == nullptr ||
         bytes >= core_->parts.host->Limit(HostUse::kFaultStaging) * core_->chunk_bytes;
}

PlanFetches::Start PlanFetches::TryStart(const Entry& entry, LaunchIndex gpu,
                                         std::array<bool, kLanes>* held_up) {
  Block* block = nullptr;
  Lane lane = kHost;
  {
    const TableLock lock(core_->table);
    const LaunchIndex host = log_->count();
    if (entry.use < host) return Start::kGone;
    block = &core_->table.at(BlockId::FromRaw(entry.block));
    // On its way out or in, there, or freed: others' business, or its turn has not come.
    if (block->state != BlockState::kSpilled || block->memory.mapping) return Start::kNothingToDo;
    const bool on_disk =
        std::ranges::any_of(block->copies.homes, [](const ChunkHome& home) { return home.on_disk; });
    lane = on_disk ? kDisk : kHost;
    if ((*held_up)[lane]) return Start::kNothingToDo;
    const uint64_t bytes = block->chunks * core_->chunk_bytes;
    if (entry.due > host && !room_.Fits(gpu, entry.due, bytes)) {
      (*held_up)[lane] = true;
      return Start::kMustWait;
    }
    std::vector<ChunkHandle> chunks;
    if (charges_->chunks(lock).free() < block->chunks) {
      chunks_wanted_ = std::max<uint64_t>(chunks_wanted_, block->chunks);
      (*held_up)[lane] = true;
      return Start::kMustWait;
    }
    charges_->chunks(lock).TakeFree(block->chunks, &chunks);
    faulter_->BeginLocked(lock, block, std::move(chunks), /*prefetch=*/true);
    room_.Add(gpu, entry.due, static_cast<int64_t>(bytes));
    under_way_.push_back({entry, gpu, bytes, lane});
  }
  ++core_->counters.prefetches;
  faulter_->Start(block).IgnoreError();  // on failure it is spilled again, and LookAtUnderWay finds it
  (*held_up)[lane] = LaneIsFull(lane);
  return Start::kStarted;
}

}  // namespace spillway::allocator
