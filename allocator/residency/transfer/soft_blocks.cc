#include "allocator/residency/transfer/soft_blocks.h"

#include <algorithm>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/state/launch_log.h"
#include "allocator/residency/transfer/mapping.h"
#include "io/os/clock.h"

namespace spillway::allocator {
namespace {

constexpr int64_t kUsesNanos = 1'000'000'000;  // longest wait for the uses of a freed block

}  // namespace

SoftBlocks::SoftBlocks(Core* core, const Parts& parts, std::function<void()> wake)
    : core_(core), addresses_(parts.addresses), clean_(parts.clean), wake_(std::move(wake)) {}

bool SoftBlocks::Map(const Block& block, const std::vector<ExtentHome>& homes) {
  std::vector<ChunkHandle> handles;
  for (const ExtentHome& home : homes) handles.push_back({home.buffer.handle, 1});
  for (const PinnedBuffer& buffer : block.memory.reached) handles.push_back({buffer.handle, 1});
  return MapHandles(core_, block.address, handles).ok();
}

void SoftBlocks::EndLocked(const TableLock& lock, Block* block) {
  lock.Covers(core_->table);
  if (std::exchange(block->memory.soft_ends, true)) return;
  asked_.push_back(block);
  wake_();
}

void SoftBlocks::TakeAsked() {
  const TableLock lock(core_->table);
  for (Block* const block : asked_) {
    Job& job = jobs_.emplace_back();
    job.block = block;
    job.began = os::Clock::System()->NowNanos();
  }
  asked_.clear();
}

bool SoftBlocks::Poll() {
  TakeAsked();
  bool progress = false;
  for (Job& job : jobs_) progress |= Advance(&job);
  std::erase_if(jobs_, [](const Job& job) { return job.over; });
  return progress;
}

// A freed block may still be used by the work that its streams had been given, and by nothing that comes
// later. The work may itself wait for the thread that waits for the address. A standstill is used after a
// second, because a standstill comes to its end.
bool SoftBlocks::Ready(Job* job) {
  const bool waited = os::Clock::System()->NowNanos() - job->began > kUsesNanos;
  if (!job->freed || job->still || waited) return core_->standstill.Join(&job->still);
  std::erase_if(job->uses, [this](const TimelineValue& value) {
    if (core_->clock.Completed(value)) return true;
    core_->clock.Cover(value).IgnoreError();  // tried again at the next poll
    return false;
  });
  return job->uses.empty();
}

bool SoftBlocks::Advance(Job* job) {
  Block* const block = job->block;
  const auto soft = [block]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return block->memory.soft && block->state == BlockState::kSpilled;
  };
  {
    const TableLock lock(core_->table);
    job->over = !soft();
    if (job->over) block->memory.soft_ends = false;  // a launch came first
    if (!job->over && block->allocation.freed && !std::exchange(job->freed, true))
      job->uses = UncompletedUses(core_->clock, block);
  }
  if (!job->over && !Ready(job)) return false;
  if (!job->over) {
    {
      const TableLock lock(core_->table);
      if (!soft()) return true;  // noticed at the next poll
      block->memory.mapping = true;
    }
    SPILLWAY_DELAY_POINT("soft.ends");
    job->over = true;
    if (UnmapBlock(core_, *block).ok()) {  // otherwise it is the device's error, and the block stays as it is
      const TableLock lock(core_->table);
      FinishLocked(lock, block);
    }
  }
  core_->standstill.Leave(&job->still);
  return true;
}

void SoftBlocks::FinishLocked(const TableLock& lock, Block* block) {
  block->memory.mapping = block->memory.soft = block->memory.soft_ends = false;
  block->copies.content_known = false;  // a kernel may have written it where it lies
  if (block->allocation.freed) {
    block->ForgetUses();
    clean_->Release(lock, &block->copies.homes);
    core_->table.MoveLocked(lock, block, BlockState::kFree);
    addresses_->FinishFree(lock, block);
  }
  core_->table.changed.NotifyAll();
}

}  // namespace spillway::allocator
