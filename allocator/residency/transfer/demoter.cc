#include "allocator/residency/transfer/demoter.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "io/os/clock.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

constexpr size_t kMostWrites = 16;             // under way at once
constexpr int64_t kBetweenLooks = 10'000'000;  // ns
constexpr int64_t kPauseAfterFailure = 500'000'000;

}  // namespace

Demoter::Demoter(Core* core, CleanCopies* clean, SharedCapacity* capacity, std::function<void()> wake)
    : core_(core), clean_(clean), capacity_(capacity), wake_(std::move(wake)) {}

bool Demoter::waits_for_time() const {
  return core_->parts.host != nullptr && core_->parts.host->gives_back();
}

bool Demoter::Poll() {
  bool progress = !jobs_.empty() && CollectWrites();
  if (!waits_for_time() || core_->error.any()) return progress;
  const int64_t now = os::Clock::System()->NowNanos();
  if (now < again_at_) return progress;
  again_at_ = now + kBetweenLooks;
  {
    const TableLock lock(core_->table);
    clean_->ReclaimLeaving(lock);
    if (core_->parts.disk != nullptr) progress |= StartLocked(lock);
  }
  for (Job* const job : begun_) {
    core_->parts.disk->Write(job->slot, job->buffer.data, job->bytes, [this, job](absl::Status status) {
      {
        os::MutexLock lock(&results_mu_);
        job->status = std::move(status);
        job->ended = true;
      }
      wake_();
    });
  }
  begun_.clear();
  return progress;
}

// ---- Starting.

bool Demoter::StartLocked(const TableLock& lock) {
  std::vector<Block*> spilled;
  core_->table.ForEachLocked(lock, BlockState::kSpilled, [&](Block* block) { spilled.push_back(block); });
  const size_t before = jobs_.size();
  for (Block* const block : spilled) {
    if (!StartBlockLocked(lock, block)) break;
  }
  return jobs_.size() > before;
}

// False when no more can be started now.
bool Demoter::StartBlockLocked(const TableLock& lock, Block* block) {
  const std::vector<ExtentHome>& homes = block->copies.homes;
  for (size_t extent = 0; extent < homes.size(); ++extent) {
    if (homes[extent].on_disk || !core_->parts.host->Leaves(homes[extent].buffer.data)) continue;
    if (UnderWay(*block, extent)) continue;
    io::SlotId slot;
    if (jobs_.size() >= kMostWrites || !TakeSlotLocked(lock, &slot)) return false;
    jobs_.push_back(std::make_unique<Job>(Job{.block = block,
                                              .moves = block->table.moves,
                                              .extent = extent,
                                              .bytes = core_->BytesOfExtent(*block, extent),
                                              .buffer = homes[extent].buffer,
                                              .slot = slot,
                                              .began = os::Clock::System()->NowNanos(),
                                              .status = {}}));
    core_->parts.host->BeginRead(homes[extent].buffer.data);
    begun_.push_back(jobs_.back().get());
  }
  return true;
}

bool Demoter::UnderWay(const Block& block, size_t extent) const {
  return std::ranges::any_of(jobs_,
                             [&](const auto& job) { return job->block == &block && job->extent == extent; });
}

bool Demoter::TakeSlotLocked(const TableLock& lock, io::SlotId* slot) {
  absl::StatusOr<std::vector<io::SlotId>> taken = core_->parts.disk->TakeSlots(1);
  if (absl::IsResourceExhausted(taken.status()) && clean_->disk_slots(lock) > 0) {
    clean_->ReclaimDisk(lock, 1);
    taken = core_->parts.disk->TakeSlots(1);
  }
  if (absl::IsResourceExhausted(taken.status())) {  // copies that other devices keep may be in the way
    capacity_->AskForCopies();
    again_at_ = os::Clock::System()->NowNanos() + kPauseAfterFailure;
  }
  if (!taken.ok()) return false;
  *slot = taken->front();
  return true;
}

// ---- Ending.

bool Demoter::CollectWrites() {
  std::vector<std::unique_ptr<Job>> ended;
  {
    os::MutexLock lock(&results_mu_);
    const auto first =
        std::partition(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job->ended; });
    std::move(first, jobs_.end(), std::back_inserter(ended));
    jobs_.erase(first, jobs_.end());
  }
  if (ended.empty()) return false;
  const TableLock lock(core_->table);
  for (const auto& job : ended) FinishLocked(lock, *job, job->status);
  return true;
}

// The bytes are the block's only if it has been spilled all the time: a block that came back and left again
// may have other bytes in the same buffer.
void Demoter::FinishLocked(const TableLock& lock, const Job& job, const absl::Status& status) {
  HostPool* const host = core_->parts.host;
  // A request that never came back may still read the buffer: the slab stays.
  if (!absl::IsDeadlineExceeded(status)) host->EndRead(job.buffer.data);
  const bool same = job.block->state == BlockState::kSpilled && job.block->table.moves == job.moves;
  if (!status.ok()) {
    os::Log(os::LogLevel::kWarn, "bytes stay in host memory: " + std::string(status.message()));
    again_at_ = os::Clock::System()->NowNanos() + kPauseAfterFailure;
  }
  if (!status.ok() || !same) {
    core_->parts.disk->ReleaseSlot(job.slot);
    return;
  }
  job.block->copies.homes[job.extent] = {{}, job.slot, true};
  demoted_bytes_.fetch_add(job.bytes);
  core_->ReportMove(
      {MoveKind::kHostToDisk, job.block->id, job.bytes, job.began, os::Clock::System()->NowNanos()});
  host->Give(HostUse::kStorage, job.buffer);
}

}  // namespace spillway::allocator
