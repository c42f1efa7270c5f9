#include "allocator/residency/device_thread.h"

#include <algorithm>

#include "io/os/clock.h"
#include "io/os/log.h"
#include "io/os/thread.h"
#include "policy/victim.h"

namespace spillway::allocator {
namespace {

// While transfers are under way the thread polls often right after one has moved on, then less and less.
constexpr int64_t kShortestPollNanos = 20'000;
constexpr int64_t kLongestPollNanos = 500'000;
constexpr auto kPollLaunches = std::chrono::microseconds(200);  // nothing under way but the job's own work
constexpr auto kSleepWhenIdle = std::chrono::milliseconds(200);
// How long a head may have no hope before it is refused: an other thread's pins or frees may still turn up.
constexpr int64_t kStuckNanos = 200'000'000;
// How long the tiers may refuse bytes before the head is refused.
constexpr int64_t kTierRefusalNanos = 1'000'000'000;
constexpr uint64_t kTierRefusals = 10;
// How long a launch that lacks room waits for a plan at most: other threads' launches may go on for ever.
constexpr int64_t kLongestPlanWaitNanos = 2'000'000'000;
// How long a refused chunk keeps the budget down.
constexpr int64_t kTryCreateNanos = 1'000'000'000;

}  // namespace

DeviceThread::DeviceThread(Core* core, CopyStreams* copies)
    : core_(core),
      faulter_(core, copies, [this] { Wake(); }),
      evictor_(core, copies, [this] { Wake(); }),
      claims_(core, &faulter_, [this] { Wake(); }),
      plan_runner_(core, &evictor_, &faulter_) {}

DeviceThread::~DeviceThread() { Stop(); }

void DeviceThread::Start() {
  thread_ = os::StartThread("spillway-device", [this] { Loop(); });
}

void DeviceThread::Stop() {
  if (!thread_.joinable()) return;
  {
    os::MutexLock lock(&wake_mu_);
    stop_ = true;
    woken_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void DeviceThread::Wake() {
  {
    os::MutexLock lock(&wake_mu_);
    woken_ = true;
  }
  wake_.NotifyOne();
}

void DeviceThread::Loop() {
  os::SetTimerSlack(std::chrono::microseconds(1));  // sleeps of 20 us end after 20 us, not 70
  const CudaDriver* const driver = core_->parts.driver;
  driver->cuCtxSetCurrent(core_->parts.context);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  for (;;) {
    {
      os::MutexLock lock(&wake_mu_);
      if (stop_) return;
    }
    bool progress = core_->clock.Poll();
    progress |= faulter_.Step();
    progress |= evictor_.Step();
    if (progress) last_progress_ = os::Clock::System()->NowNanos();
    progress |= FinishFrees();
    progress |= core_->writes.Step();
    bool room_wanted;
    {
      os::MutexLock lock(&core_->table.mu);
      room_wanted = claims_.WantedLocked() > 0;
    }
    progress |= plan_runner_.Step(room_wanted);
    progress |= StartEvictions();
    progress |= ReleaseExcess();
    Sleep(progress);
  }
}

void DeviceThread::Sleep(bool progress) {
  if (progress) return;
  std::chrono::nanoseconds pause = kSleepWhenIdle;
  if (!evictor_.idle() || !faulter_.idle()) {
    const int64_t still = os::Clock::System()->NowNanos() - last_progress_;
    pause = std::chrono::nanoseconds(std::clamp(still / 4, kShortestPollNanos, kLongestPollNanos));
  } else if (plan_runner_.active() || frees_wait_ ||
             (core_->pressure.load() && core_->clock.UncompletedLaunches() > 0)) {
    pause = kPollLaunches;
  }
  os::MutexLock lock(&wake_mu_);
  if (!woken_ && !stop_) wake_.WaitFor(&wake_mu_, pause);
  woken_ = false;
}

// ---- What must leave.

DeviceThread::Missing DeviceThread::MissingChunksLocked() {
  const auto above = [](uint64_t goal, uint64_t have) { return goal > have ? goal - have : 0; };
  const uint64_t coming = evictor_.chunks_coming();
  // A plan keeps its own room; without one a reserve is kept, so that a fault seldom waits.
  const bool keep_reserve = core_->pressure.load() && core_->evict.load() && !plan_runner_.active();
  const uint64_t reserve = keep_reserve ? core_->options.free_reserve_bytes / core_->chunk_bytes : 0;
  Missing missing;
  missing.any = std::max(above(std::max(claims_.WantedLocked(), reserve), core_->chunks.available() + coming),
                         above(core_->chunks.excess(), core_->chunks.free() + coming));
  missing.cached_only = above(plan_runner_.chunks_wanted(), core_->chunks.free() + coming);
  return missing;
}

bool DeviceThread::StartEvictions() {
  bool started;
  {
    os::MutexLock lock(&core_->table.mu);
    if (core_->create_failed_nanos != 0 &&
        os::Clock::System()->NowNanos() - core_->create_failed_nanos > kTryCreateNanos) {
      core_->RestoreTargetLocked();
    }
    const Missing missing = MissingChunksLocked();
    if (missing.any == 0) stuck_since_ = 0;
    if (missing.any == 0 && missing.cached_only == 0) return false;
  }
  core_->clock.CoverAll();  // so that the next poll knows whose last use is over
  {
    os::MutexLock lock(&core_->table.mu);
    const Missing missing = MissingChunksLocked();
    const bool demand = claims_.WantedLocked() > core_->chunks.available() + evictor_.chunks_coming();
    bool cancelled = false;
    std::vector<Block*> victims;
    const uint64_t stripped =
        ChooseStripsLocked(std::max(missing.any, missing.cached_only), demand, &victims);
    if (demand && missing.any > stripped && PlanGivesRoom()) {
      cancelled = true;
    } else if (missing.any > stripped) {
      if (demand) cancelled = faulter_.CancelPrefetchesLocked();
      // What a fetch of the plan gives back needs no victim.
      if (core_->evict.load() && !(cancelled && plan_runner_.active())) {
        ChooseVictimsLocked(missing.any - stripped, demand, &victims);
      }
    }
    started = !victims.empty();
    if (started) evictor_.StartLocked(victims);
    if (demand) RefuseIfStuckLocked(started || cancelled);
    if (!demand) stuck_since_ = 0;
  }
  if (started) evictor_.Step();  // close the gates for all of them at once
  return started;
}

// Whether a launch that lacks room may hope for the plan: evictions of it are to come or under way, or the GPU has not
// done all that could bring them. Not for ever: what is queued may wait for a later call of the thread that waits here.
bool DeviceThread::PlanGivesRoom() {
  const int64_t now = os::Clock::System()->NowNanos();
  const bool hope =
      plan_runner_.active() && (plan_runner_.EvictionsToCome() || evictor_.chunks_coming() > 0 ||
                                core_->clock.UncompletedLaunches() > 0);
  if (claims_.HeadLocked() != plan_head_) {
    plan_head_ = claims_.HeadLocked();
    plan_wait_since_ = now;
  }
  return hope && now - plan_wait_since_ < kLongestPlanWaitNanos;
}

namespace {

bool MayLeave(const Block& block) {
  return block.pins == 0 && block.held_reasons == 0 && block.evict == nullptr && !block.mapping &&
         !block.freed;
}

// Blocks that could go, and what the policy judges them by.
struct Candidates {
  std::vector<Block*> blocks;
  std::vector<policy::VictimCandidate> facts;

  // `idle_since`: any count that grows with use: the last use, or the order of frees. `distance`: launches until the
  // next use, kNever when unknown.
  void Add(Block* block, uint64_t idle_since, uint64_t distance) {
    blocks.push_back(block);
    facts.push_back({block->id.raw(), block->chunks, idle_since, distance});
  }
  // Adds those that the policy picks to `victims`; returns how many chunks they are.
  uint64_t Choose(uint64_t chunks, std::vector<Block*>* victims) const {
    uint64_t taken = 0;
    for (const uint32_t i : policy::SelectVictims(facts, chunks)) {
      taken += blocks[i]->chunks;
      victims->push_back(blocks[i]);
    }
    return taken;
  }
};

}  // namespace

// Blocks with nothing worth keeping: freed ones first, then those handed out and not used yet.
uint64_t DeviceThread::ChooseStripsLocked(uint64_t chunks, bool demand, std::vector<Block*>* victims) {
  Candidates cached;
  Candidates unused;
  core_->table.ForEachLocked([&](Block* block) {
    if (!MayLeave(*block)) return;
    if (block->state == BlockState::kCached && block->listed) {
      cached.Add(block, block->freed_at, plan_runner_.DistanceToNextUse(*block));
    } else if (demand && block->state == BlockState::kResident && !block->used_since_hand_out()) {
      unused.Add(block, block->handed_out_at, plan_runner_.DistanceToNextUse(*block));
    }
  });
  const uint64_t taken = cached.Choose(chunks, victims);
  return taken + (taken < chunks ? unused.Choose(chunks - taken, victims) : 0);
}

// Live blocks: the one needed farthest ahead, else the least recently used. In the background only those whose last use is over; for a waiting launch any.
void DeviceThread::ChooseVictimsLocked(uint64_t chunks, bool demand, std::vector<Block*>* victims) {
  const int64_t now = os::Clock::System()->NowNanos();
  if (!evictor_.refusal().ok()) {
    // No tier took the last block. Try again now and then: frees make room.
    if (refused_since_ != 0 && now - refused_since_ < 10'000'000) return;
    refused_since_ = now;
  } else {
    refused_since_ = 0;
  }
  Candidates candidates;
  core_->table.ForEachLocked([&](Block* block) {
    if (block->state != BlockState::kResident || !MayLeave(*block) || !block->used_since_hand_out()) return;
    if (!core_->MayLeave(*block)) return;
    if (!demand) {
      for (const os::Atomic<uint64_t>& packed : block->stamps) {
        const Stamp stamp = Stamp::Unpack(packed.load(std::memory_order_relaxed));
        if (stamp.stream != kNoStream && !core_->clock.Completed(stamp)) return;
      }
    }
    candidates.Add(block, block->last_use.load(), plan_runner_.DistanceToNextUse(*block));
  });
  const size_t stripped = victims->size();
  const uint64_t taken = candidates.Choose(chunks, victims);
  for (size_t i = stripped; i < victims->size(); ++i) plan_runner_.NoteUnplannedLocked(*(*victims)[i]);
  if (taken > 0 && !core_->pressure.exchange(true)) {
    os::Announce("spilling starts: the job has outgrown its " +
                 std::to_string(core_->chunks.target() * core_->chunk_bytes >> 20) + " MiB of GPU memory");
  }
}

void DeviceThread::RefuseIfStuckLocked(bool any_candidate) {
  const bool hope = any_candidate || evictor_.chunks_coming() > 0 || !evictor_.idle() ||
                    claims_.grants() > 0 || faulter_.prefetches_under_way() > 0 ||
                    core_->clock.UncompletedLaunches() > 0;
  const bool refused = !evictor_.refusal().ok();
  const int64_t now = os::Clock::System()->NowNanos();
  const uint64_t room_made = core_->counters.evictions.load() + core_->frees;
  if (stuck_since_ == 0 || claims_.HeadLocked() != stuck_head_ || room_made != room_made_ ||
      (hope && !refused)) {
    stuck_since_ = hope && !refused ? 0 : now;
    stuck_head_ = claims_.HeadLocked();
    room_made_ = room_made;
    refusals_ = evictor_.refusals();
    return;
  }
  if (now - stuck_since_ < (refused ? kTierRefusalNanos : kStuckNanos)) return;
  // While the tiers refuse, tries go on and look like hope; one that waits for a long launch may yet succeed.
  if (hope && evictor_.refusals() - refusals_ < kTierRefusals) return;
  stuck_since_ = 0;
  claims_.RefuseHeadLocked(absl::ResourceExhaustedError(
      refused ? "nothing more can be moved off the GPU: " + std::string(evictor_.refusal().message())
              : "every other block is held on the GPU"));
}

// ---- Giving back.

bool DeviceThread::ReleaseExcess() {
  std::vector<ChunkHandle> chunks;
  {
    os::MutexLock lock(&core_->table.mu);
    if (core_->chunks.excess() == 0) return false;
    core_->chunks.BeginRelease(core_->chunks.excess(), &chunks);
  }
  for (const ChunkHandle chunk : chunks) ReleaseChunk(core_->parts.driver, chunk).IgnoreError();
  if (chunks.empty()) return false;
  core_->table.changed.NotifyAll();
  return true;
}

// Freed blocks that recordStream keeps from reuse until those streams have done what was queued.
bool DeviceThread::FinishFrees() {
  os::MutexLock lock(&core_->table.mu);
  bool progress = false;
  std::erase_if(core_->waiting_frees, [&](Block* block) {
    core_->table.mu.AssertHeld();
    for (const Stamp& stamp : block->recorded) {
      if (!core_->clock.Completed(stamp)) {
        core_->clock.Cover(stamp).IgnoreError();
        return false;
      }
    }
    block->recorded.clear();
    core_->ListLocked(block);
    progress = true;
    return true;
  });
  frees_wait_ = !core_->waiting_frees.empty();
  if (progress) core_->table.changed.NotifyAll();
  return progress;
}

}  // namespace spillway::allocator
