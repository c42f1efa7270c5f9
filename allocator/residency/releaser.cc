#include "allocator/residency/releaser.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/residency.h"
#include "io/os/clock.h"
#include "io/os/errno.h"

namespace spillway::allocator {
namespace {

// Longest wait for an external allocation in all, and longest time without a chunk having been given up.
constexpr int64_t kMaxWaitForExternal = 1'000'000'000;
constexpr int64_t kMaxWaitWithoutProgress = 100'000'000;
// Longest wait of a driver call for evictions, which may go to a disk, and longest time without one that
// ends.
constexpr int64_t kMaxWaitForIdle = 30'000'000'000;
constexpr int64_t kMaxWaitForEviction = 2'000'000'000;
// Bytes that are evicted before each repeat of such a call, sized for a kernel's code, a library's code, and
// the local memory of a large kernel.
constexpr uint64_t kEvictedByAttempt[Residency::kMaxGiveBacks - 1] = {64 << 20, 256 << 20, 1024 << 20};
// Time between two questions for the device's free memory.
constexpr int64_t kAskNanos = 1'000'000'000;

}  // namespace

Releaser::Releaser(Core* core, Charges* charges, Evictor* evictor, std::function<void()> wake)
    : core_(core), charges_(charges), evictor_(evictor), wake_(std::move(wake)) {}

absl::Status Releaser::EmptyCache() {
  DecommitCache(UINT64_MAX).IgnoreError();  // the code below gives back what could be taken
  std::vector<ChunkHandle> handles;
  {
    const TableLock lock(core_->table);
    core_->table.LaunchSetsLocked(lock).ForgetDead();
    charges_->LowerPromise(lock);
    charges_->chunks(lock).BeginRelease(charges_->chunks(lock).free(), &handles);
  }
  const absl::Status status = ReleaseHandles(handles);
  return core_->error.any() ? core_->error.status(*core_->parts.driver) : status;
}

absl::Status Releaser::ReleaseFree() {
  std::vector<ChunkHandle> handles;
  {
    const TableLock lock(core_->table);
    charges_->chunks(lock).BeginRelease(charges_->chunks(lock).free(), &handles);
  }
  return ReleaseHandles(handles);
}

absl::Status Releaser::ReleaseHandles(const std::vector<ChunkHandle>& handles) {
  if (handles.empty()) return absl::OkStatus();
  const absl::Status status = Release(core_->parts.driver, handles);
  core_->error.Record(status);
  const TableLock lock(core_->table);
  charges_->chunks(lock).EndRelease(ChunksOf(handles));
  core_->table.changed.NotifyAll();
  return status;
}

absl::Status Releaser::DecommitCache(uint64_t chunks) {
  TableLock lock(core_->table);
  if (core_->stopped.load()) return core_->StopStatus();
  std::vector<Block*> victims;
  uint64_t taken = 0;
  core_->table.ForEachLocked(lock, BlockState::kCached, [&](Block* block) {
    if (taken >= chunks || !block->allocation.listed || block->eviction.job != nullptr) return;
    if (block->pins > 0 || block->memory.mapping || block->allocation.freed) return;
    victims.push_back(block);
    taken += block->device_chunks();
  });
  if (victims.empty()) return absl::OkStatus();
  evictor_->StartLocked(lock, victims);
  wake_();
  const auto under_way = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::any_of(victims.begin(), victims.end(), [](Block* block) {
      return block->eviction.job != nullptr && !block->eviction.job->cancelled;
    });
  };
  const os::Wait wait(core_->waits, os::WaitKind::kCacheRelease,
                      std::to_string(victims.size()) + " cached blocks");
  while (under_way()) SPILLWAY_RETURN_IF_ERROR(core_->AwaitChangeLocked(&lock, wait));
  return absl::OkStatus();
}

void Releaser::YieldToExternal(uint64_t bytes) {
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  {
    const TableLock lock(core_->table);
    charges_->BeginExternal(lock, bytes);
  }
  AwaitTarget(kMaxWaitForExternal, kMaxWaitWithoutProgress);
}

void Releaser::AwaitTarget(int64_t most_nanos, int64_t most_without_progress) {
  const int64_t start = os::Clock::System()->NowNanos();
  int64_t last_progress = start;
  uint64_t chunks_now = UINT64_MAX;
  for (;;) {
    SPILLWAY_DELAY_POINT("external.looks");
    std::vector<ChunkHandle> handles;
    {
      const TableLock lock(core_->table);
      charges_->chunks(lock).BeginRelease(charges_->chunks(lock).excess(), &handles);
    }
    ReleaseHandles(handles).IgnoreError();  // the device keeps the error
    const int64_t now = os::Clock::System()->NowNanos();
    const TableLock lock(core_->table);
    if (!charges_->chunks(lock).above_target() || core_->stopped.load()) return;
    if (charges_->chunks(lock).created() != chunks_now) last_progress = now;
    chunks_now = charges_->chunks(lock).created();
    if (now - start > most_nanos || now - last_progress > most_without_progress) return;
    wake_();
    core_->table.changed.WaitFor(&core_->table.mu, std::chrono::milliseconds(10));
  }
}

bool Releaser::GiveBack(int attempt, uint64_t bytes_wanted) {
  if (core_->stopped.load() || attempt >= Residency::kMaxGiveBacks) return false;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  return attempt == 0 ? ReleaseUnused(bytes_wanted) : EvictIdle(kEvictedByAttempt[attempt - 1]);
}

bool Releaser::ReleaseUnused(uint64_t bytes_wanted) {
  const uint64_t wanted = std::max<uint64_t>(bytes_wanted, 32 << 20) / core_->chunk_bytes + 1;
  uint64_t released = 0;
  // The first round takes free chunks. If they are too few, cached blocks are decommitted for the second
  // round.
  for (int round = 0; round < 2 && released < wanted; ++round) {
    std::vector<ChunkHandle> handles;
    {
      const TableLock lock(core_->table);
      released += charges_->chunks(lock).BeginRelease(wanted - released, &handles);
    }
    ReleaseHandles(handles).IgnoreError();  // the device keeps the error
    if (released < wanted && round == 0) DecommitCache(wanted - released).IgnoreError();
  }
  return released > 0;
}

// A lower target makes the device's thread choose victims. It also keeps other threads from taking the memory
// before the repeated call has it, unless a launch or an allocation of theirs cannot do without it.
bool Releaser::EvictIdle(uint64_t bytes) {
  if (!core_->evict.load()) return false;
  uint64_t before = 0;
  {
    const TableLock lock(core_->table);
    before = charges_->chunks(lock).created();
    const uint64_t ours = before * core_->chunk_bytes;
    const uint64_t limit = std::max(charges_->LeastBytes(lock), ours - std::min(ours, bytes));
    if (limit >= ours) return false;
    charges_->LowerTargetTo(lock, limit);
    limit_asked_.store(os::Clock::System()->NowNanos());
  }
  AwaitTarget(kMaxWaitForIdle, kMaxWaitForEviction);
  const TableLock lock(core_->table);
  return charges_->chunks(lock).created() < before;
}

bool Releaser::PollDeviceLimit() {
  const int64_t asked = limit_asked_.load(), now = os::Clock::System()->NowNanos();
  if (asked == 0 || now - asked < kAskNanos) return false;
  size_t free_bytes = 0, total_bytes = 0;
  const CUresult answer = core_->parts.driver->cuMemGetInfo_v2(&free_bytes, &total_bytes);
  const TableLock lock(core_->table);
  if (limit_asked_.load() != asked) return false;  // a call has set another limit meanwhile
  if (answer == CUDA_SUCCESS) charges_->LimitByFree(lock, free_bytes);
  limit_asked_.store(charges_->device_limits(lock) ? now : 0);
  return answer == CUDA_SUCCESS;
}

}  // namespace spillway::allocator
