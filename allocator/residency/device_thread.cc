#include "allocator/residency/device_thread.h"

#include <algorithm>

#include "allocator/residency/test_points.h"
#include "io/os/clock.h"
#include "io/os/log.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

// While transfers are under way the thread polls often right after one has moved on, then less and less.
constexpr int64_t kShortestPollNanos = 20'000;
constexpr int64_t kLongestPollNanos = 500'000;
constexpr auto kPollLaunches = std::chrono::microseconds(200);  // nothing under way but the job's own work
constexpr auto kSleepWhenIdle = std::chrono::milliseconds(200);
constexpr auto kLookForPauses = std::chrono::milliseconds(10);  // the shortest pause after a failed eviction
// How long a head may have no hope before it is refused: another thread's pins or frees may still turn up.
constexpr int64_t kStuckNanos = 200'000'000;
// The same once evictions have failed: what failed may pass.
constexpr int64_t kFailureNanos = 1'000'000'000;
// How long a launch that lacks room waits for a plan at most: other threads' launches may go on for ever.
constexpr int64_t kLongestPlanWaitNanos = 2'000'000'000;
// How long a refused chunk keeps the budget down.
constexpr int64_t kTryCreateNanos = 1'000'000'000;
// How long the end of the process waits for the thread, which may be in a call of the driver.
constexpr auto kLongestJoin = std::chrono::milliseconds(500);

}  // namespace

DeviceThread::DeviceThread(Core* core, CopyStreams* copies)
    : core_(core),
      faulter_(core, copies, [this] { Wake(); }),
      evictor_(core, copies, [this] { Wake(); }),
      claims_(core, &faulter_, [this] { Wake(); }),
      plan_runner_(core, &evictor_, &faulter_) {}

DeviceThread::~DeviceThread() { Stop(); }

absl::Status DeviceThread::Start() {
  return thread_.Start("spillway-device", [this] { Loop(); });
}

bool DeviceThread::Stop() {
  {
    os::MutexLock lock(&wake_mu_);
    stop_ = true;
    woken_ = true;
  }
  wake_.NotifyAll();
  if (!thread_.JoinFor(kLongestJoin)) left_behind_ = true;
  return !left_behind_;
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
  const CUresult current = driver->cuCtxSetCurrent(core_->parts.context);
  // Without a context no call of this thread succeeds.
  if (current != CUDA_SUCCESS)
    core_->error.Fail(driver->ToStatus(current, "making the device's context current"));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  for (;;) {
    {
      os::MutexLock lock(&wake_mu_);
      if (stop_) return;
    }
    Sleep(core_->stopped.load() ? EndWaits() : Step());
  }
}

bool DeviceThread::Step() {
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
  return progress;
}

// After a device error nothing moves any more. Who had just begun to wait when it came has not heard of it.
bool DeviceThread::EndWaits() {
  os::MutexLock lock(&core_->table.mu);
  core_->table.changed.NotifyAll();
  return false;
}

void DeviceThread::Sleep(bool progress) {
  if (progress) return;
  std::chrono::nanoseconds pause = kSleepWhenIdle;
  bool looks_for_safety = false;  // only in case that somebody forgot to wake it
  if (core_->stopped.load()) {
    pause = kSleepWhenIdle;
  } else if (!evictor_.idle() || !faulter_.idle()) {
    const int64_t still = os::Clock::System()->NowNanos() - last_progress_;
    pause = std::chrono::nanoseconds(std::clamp(still / 4, kShortestPollNanos, kLongestPollNanos));
  } else if (plan_runner_.active() || frees_wait_ ||
             (core_->pressure.load() && core_->clock.UncompletedLaunches() > 0)) {
    pause = kPollLaunches;
  } else if (waits_for_time_) {
    pause = kLookForPauses;
  } else {
    looks_for_safety = true;
  }
  os::MutexLock lock(&wake_mu_);
  if (!woken_ && !stop_) {
    if (looks_for_safety) {
      wake_.WaitRechecking(&wake_mu_, pause);
    } else {
      wake_.WaitFor(&wake_mu_, pause);
    }
  }
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
    // A block whose eviction failed is tried again after its pause; a budget that fell, after a second.
    waits_for_time_ = missing.any > 0 || missing.cached_only > 0 || core_->create_failed_nanos != 0;
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
    if (demand) RefuseIfStuckLocked(cancelled);
    if (!demand) stuck_since_ = 0;
  }
  if (started) evictor_.Step();  // close the gates for all of them at once
  return started;
}

// Whether a launch that lacks room may hope for the plan: evictions of it are to come or under way, or the GPU has not
// done all that could bring them. Not for ever: what is queued may wait for a later call of the thread that waits here.
bool DeviceThread::PlanGivesRoom() {
  const int64_t now = os::Clock::System()->NowNanos();
  const bool hope = plan_runner_.active() && (plan_runner_.EvictionsToCome() ||
                                              evictor_.chunks_coming() > 0 || core_->clock.MayComplete());
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

uint64_t ChunksOf(const std::vector<Block*>& blocks) {
  uint64_t chunks = 0;
  for (const Block* block : blocks) chunks += block->chunks;
  return chunks;
}

}  // namespace

// The first of `index`, by their next use and by `idle_since`, that may leave, until they are `chunks` together.
void DeviceThread::SelectLocked(policy::VictimIndex* index, uint64_t chunks,
                                absl::FunctionRef<uint64_t(const Block&)> idle_since,
                                absl::FunctionRef<bool(const Block&)> may_leave,
                                std::vector<Block*>* victims) {
  const BlockTable& table = core_->table;
  const policy::LaunchIndex now = plan_runner_.Now();
  const auto facts = [&](policy::VictimIndex::Key key) {
    const Block& block = *table.BlockOf(key);
    return policy::VictimIndex::Facts{idle_since(block), plan_runner_.NextUse(block, now)};
  };
  const auto bytes = [&](policy::VictimIndex::Key key) -> policy::Bytes {
    const Block& block = *table.BlockOf(key);
    return MayLeave(block) && may_leave(block) ? block.chunks : 0;
  };
  SPILLWAY_BEFORE_SELECTION();
  const std::vector<policy::VictimIndex::Key> chosen =
      index->Select(chunks, now, plan_runner_.plan_number(), facts, bytes);
  SPILLWAY_AFTER_SELECTION(*index, chunks, facts, bytes, chosen);
  for (const auto key : chosen) victims->push_back(table.BlockOf(key));
}

// Blocks with nothing worth keeping: freed ones first, then those handed out and not used yet.
uint64_t DeviceThread::ChooseStripsLocked(uint64_t chunks, bool demand, std::vector<Block*>* victims) {
  BlockTable::Victims& choice = core_->table.victims;
  for (const auto key : choice.unused.Keys()) {
    if (!core_->table.BlockOf(key)->used_since_hand_out()) continue;
    choice.unused.Remove(key);
    choice.idle.Add(key);
  }
  SelectLocked(
      &choice.cached, chunks, [](const Block& block) { return block.freed_at; },
      [](const Block& block) { return block.listed; }, victims);
  const uint64_t cached = ChunksOf(*victims);
  if (!demand || cached >= chunks) return cached;
  SelectLocked(
      &choice.unused, chunks - cached, [](const Block& block) { return block.handed_out_at; },
      [](const Block& block) { return !block.used_since_hand_out(); }, victims);
  return ChunksOf(*victims);
}

// Live blocks: the one needed farthest ahead, else the least recently used. In the background only those whose last use is
// over; for a waiting launch any. One whose eviction has failed has a pause.
void DeviceThread::ChooseVictimsLocked(uint64_t chunks, bool demand, std::vector<Block*>* victims) {
  const int64_t now = os::Clock::System()->NowNanos();
  const auto may_leave = [&](const Block& block) {
    if (!block.used_since_hand_out() || !core_->MayLeave(block)) return false;
    if (block.failed_evictions > 0 && now < block.evict_again_at) return false;
    return demand || IsIdle(block);
  };
  const size_t stripped = victims->size();
  SelectLocked(
      &core_->table.victims.idle, chunks, [](const Block& block) { return block.last_use.load(); }, may_leave,
      victims);
  for (size_t i = stripped; i < victims->size(); ++i) plan_runner_.NoteUnplannedLocked(*(*victims)[i]);
  if (victims->size() > stripped && !core_->pressure.exchange(true)) {
    os::Announce("spilling starts: the job has outgrown its " +
                 std::to_string(core_->chunks.target() * core_->chunk_bytes >> 20) + " MiB of GPU memory");
  }
}

bool DeviceThread::IsIdle(const Block& block) const {
  return std::ranges::all_of(block.stamps, [&](const auto& packed) {
    const Stamp stamp = Stamp::Unpack(packed.load(std::memory_order_relaxed));
    return stamp.stream == kNoStream || core_->clock.Completed(stamp);
  });
}

// The head is refused when nothing is left to hope for. What has failed before is tried again, and is hope until
// something has failed since room was last made.
void DeviceThread::RefuseIfStuckLocked(bool cancelled) {
  const int64_t now = os::Clock::System()->NowNanos();
  const uint64_t room_made = core_->counters.evictions.load() + core_->frees;
  if (claims_.HeadLocked() != stuck_head_ || room_made != room_made_) evictor_.ForgetFailures();
  const bool retries = evictor_.first_failure().ok() && evictor_.chunks_coming() > 0;
  const bool hope = cancelled || retries || evictor_.HasHope() || claims_.grants() > 0 ||
                    faulter_.prefetches_under_way() > 0 || core_->clock.MayComplete();
  if (stuck_since_ == 0 || claims_.HeadLocked() != stuck_head_ || room_made != room_made_ || hope) {
    stuck_since_ = hope ? 0 : now;
    stuck_head_ = claims_.HeadLocked();
    room_made_ = room_made;
    return;
  }
  const absl::Status& failure = evictor_.first_failure();
  if (now - stuck_since_ < (failure.ok() ? kStuckNanos : kFailureNanos)) return;
  stuck_since_ = 0;
  if (failure.ok()) {
    claims_.RefuseHeadLocked(absl::ResourceExhaustedError("every other block is held on the GPU"));
  } else if (ResultOf(failure) == CUDA_ERROR_UNKNOWN) {
    claims_.RefuseHeadLocked(absl::ResourceExhaustedError("nothing more can be moved off the GPU: " +
                                                          std::string(failure.message())));
  } else {
    claims_.RefuseHeadLocked(failure);
  }
}

// ---- Giving back.

bool DeviceThread::ReleaseExcess() {
  std::vector<ChunkHandle> chunks;
  {
    os::MutexLock lock(&core_->table.mu);
    if (core_->chunks.excess() == 0) return false;
    core_->chunks.BeginRelease(core_->chunks.excess(), &chunks);
  }
  for (const ChunkHandle chunk : chunks) core_->error.Note(ReleaseChunk(core_->parts.driver, chunk));
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
      if (!core_->clock.Completed(stamp) && !SPILLWAY_MUTANT(kReuseRecorded)) {
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
