#include "allocator/residency/launches.h"

#include <algorithm>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/mapping.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

// Claims that one launch may make without success because a block could not be brought in.
constexpr int kMaxAttempts = 100;
// Attempts that may fail with another error than a lost race.
constexpr int kMaxFailures = 3;

bool MayBeTriedAgain(const absl::Status& status) {
  return !absl::IsDeadlineExceeded(status) && !absl::IsCancelled(status) && !absl::IsDataLoss(status);
}

// Under pressure the launching thread records an event after each so many launches.
constexpr policy::LaunchIndex kLaunchesBetweenEvents = 16;

}  // namespace

Launches::Launches(Core* core, Parts parts)
    : core_(core),
      log_(parts.log),
      claims_(parts.claims),
      faulter_(parts.faulter),
      copies_(parts.copies),
      reach_(parts.reach),
      writes_(parts.writes),
      throttle_(parts.throttle),
      refusals_(parts.refusals),
      repeat_when_full_(std::move(parts.repeat_when_full)),
      pin_(std::move(parts.pin)) {}

uint64_t Launches::BytesOf(const AccessSet& set) const {
  uint64_t bytes = 0;
  for (BlockId id : set) bytes += core_->table.at(id).gate.bytes.load(std::memory_order_relaxed);
  return bytes;
}

bool Launches::AllOpen(const AccessSet& set, uint64_t* bytes) const {
  uint64_t sum = 0;
  for (BlockId id : set) {
    const Block& block = core_->table.at(id);
    if (block.gate.state.load(std::memory_order_acquire) == Gate::kClosed) return false;
    sum += block.gate.bytes.load(std::memory_order_relaxed);
  }
  *bytes = sum;
  return true;
}

void Launches::AfterLaunch(const AccessSet& set, StreamIndex stream, policy::LaunchIndex index,
                           uint64_t tag) {
  const bool due = core_->pressure.load(std::memory_order_relaxed) &&
                   ((index % kLaunchesBetweenEvents == 0 && core_->clock.TakesCountedEvent(stream)) ||
                    throttle_->EventAfter(index));
  if (due || core_->clock.IsPerThread(stream))  // a later event covers the same launches
    core_->clock.Cover({stream, core_->clock.Current(stream)}).IgnoreError();
  if (core_->parts.observer != nullptr) {
    core_->parts.observer->OnLaunch(core_->options.device, index, tag, set);
  }
}

inline bool Launches::MarkEntry(StreamRef stream) const {
  LaunchObserver* const observer = core_->parts.observer;
  if (observer == nullptr || __builtin_expect(!observer->wants_marks(), 1)) return false;
  if (captures_.load() != 0) return false;  // an event recorded now might end a capture
  observer->OnEnter(stream);
  return true;
}

void Launches::MarkReady(StreamRef stream) const {
  if (captures_.load() == 0) core_->parts.observer->OnReady(stream);
}

void Launches::RememberSet(const AccessSet& set) {
  std::vector<LaunchSets::Member> blocks;
  const TableLock lock(core_->table);
  for (BlockId id : set) {
    const Block& block = core_->table.at(id);
    blocks.push_back(
        {id, block.gate.bytes.load(std::memory_order_relaxed), block.live(), block.pin_reasons != 0});
  }
  core_->table.LaunchSetsLocked(lock).Record(blocks);
}

// The driver answers with its code after a device error. If we found the error ourselves (a mapping that may
// be half gone), the launch might access anything and is not made.
CUresult Launches::Bypass(absl::FunctionRef<CUresult()> launch) const {
  if (core_->closed.load() || !core_->error.any()) return launch();
  if (!IsSticky(core_->error.first())) return core_->error.first();
  const CUresult result = launch();
  return result != CUDA_SUCCESS ? result : core_->error.first();
}

// The fast path is one read-side section, from the look at the gates to the record of the uses. An eviction
// closes the gate of its block first and then waits for all sections that were entered before. Either the
// launch sees the closed gate, or the eviction sees the recorded use and waits for its completion; neither
// needs a lock. Everything else goes to RunPinned: a closed gate, a stream without an index, a capture, a
// sampled launch, and a launch that the driver answered with out-of-memory.
CUresult Launches::Run(const AccessSet& set, StreamRef stream, uint64_t tag,
                       absl::FunctionRef<CUresult()> launch) {
  if (core_->stopped.load(std::memory_order_relaxed)) return Bypass(launch);
  const bool other_device = stream.context != nullptr && stream.context != core_->parts.context;
  if (__builtin_expect(other_device, 0)) return RunPinned(set, stream, tag, launch);
  const bool marked = MarkEntry(stream);
  uint64_t bytes = 0;
  const StreamIndex index = core_->clock.Find(stream);
  ReadSections::Section* const section = ReadSections::ForThisThread();
  const bool no_capture = captures_.load(std::memory_order_relaxed) == 0;
  const bool pressed = core_->pressure.load(std::memory_order_relaxed);
  // A sampled launch takes the slow path, under pins.
  if (__builtin_expect(pressed, 0) && no_capture && writes_->Wants(tag, set, log_->recent_count())) {
    return RunPinned(set, stream, tag, launch);
  }
  if (section != nullptr && index != kNoStream && no_capture) {
    if (__builtin_expect(pressed, 0)) {
      CUresult ended = CUDA_SUCCESS;
      if (EndsAtRunAhead(BytesOf(set), index, tag, launch, &ended)) return ended;
    }
    Standstill::Section making(&core_->standstill);
    section->Enter(core_->read_sections.fence());
    if (AllOpen(set, &bytes)) {
      SPILLWAY_DELAY_POINT("launch.inside_section");
      if (__builtin_expect(marked, 0)) MarkReady(stream);
      const CUresult result = launch();
      policy::LaunchIndex at = 0;
      if (SPILLWAY_MUTANT(kRecordAfterLeave)) section->Leave();
      if (result == CUDA_SUCCESS) {
        const TimelineValue value =
            log_->Add(index, core_->pressure.load(std::memory_order_relaxed) ? bytes : 0, &at);
        const uint8_t thread = ReadSections::NumberOf(section);
        for (BlockId id : set) RecordLaunchUse(core_->clock, &core_->table.at(id), value, thread, at);
      }
      if (!SPILLWAY_MUTANT(kRecordAfterLeave)) section->Leave();
      RecordSet(set, bytes);
      if (__builtin_expect(result == CUDA_SUCCESS, 1)) {
        AfterLaunch(set, index, at, tag);
        return result;
      }
      if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        core_->error.Record(result);
        return result;
      }
      // Out-of-memory: RunPinned launches once more, under pins.
    } else {
      section->Leave();
    }
  }
  return RunPinned(set, stream, tag, launch);
}

// ---- Under pins.

CUresult Launches::RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                             absl::FunctionRef<CUresult()> launch) {
  if (core_->stopped.load(std::memory_order_relaxed)) return Bypass(launch);
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  ++core_->counters.slow_launches;
  if (IsCapturing(stream)) {
    // The launch will be replayed without us, so its blocks must be there for good.
    if (absl::Status status = pin_(set); !status.ok())
      return Ended(status, [&] { return InCallersContext(stream, launch); });
    return InCallersContext(stream, launch);
  }
  return RunClaimed(set, set, stream, tag, launch);
}

CUresult Launches::RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                                  absl::FunctionRef<CUresult()> launch) {
  if (core_->stopped.load(std::memory_order_relaxed)) return Bypass(launch);
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  ++core_->counters.slow_launches;
  bool capturing = false;
  const absl::Status asked =
      core_->parts.driver->ToStatus(AskCapturing(stream, &capturing), "asking whether a stream captures");
  if (!asked.ok()) return Ended(asked, [&] { return InCallersContext(stream, launch); });
  // Evictions have been stopped before such a launch may go into a graph.
  if (capturing) return InCallersContext(stream, launch);
  return RunClaimed(LiveBlocks(), set, stream, tag, launch);
}

absl::Status Launches::BringAllBack() {
  if (core_->stopped.load(std::memory_order_relaxed)) return absl::OkStatus();
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  Grant grant;
  SPILLWAY_RETURN_IF_ERROR(Prepare(LiveBlocks(), nullptr, 0, &grant));
  claims_->Release(&grant);
  return absl::OkStatus();
}

void Launches::BeginCapture(CUstream stream) {
  const StreamIndex index = core_->clock.Find({stream, false});
  // The number also covers work that came past the gate. Other streams may join the capture, and none of them
  // can be covered by an event then, so all are covered now.
  if (index != kNoStream) core_->clock.Next(index, 0);
  core_->clock.CoverAll();
  captures_.fetch_add(1);
}

void Launches::EndCapture() {
  if (captures_.load() > 0) captures_.fetch_sub(1);
}

CUresult Launches::AskCapturing(StreamRef stream, bool* capturing) const {
  *capturing = captures_.load() != 0;
  if (!*capturing) return CUDA_SUCCESS;
  return InCallersContext(stream,
                          [&] { return core_->parts.driver->AskCapturing(stream.Explicit(), capturing); });
}

// Launches in the context in which the application called, because a default stream is another stream in
// every context.
CUresult Launches::InCallersContext(StreamRef stream, absl::FunctionRef<CUresult()> call) const {
  if (stream.context == nullptr) return call();
  ScopedContext scope(core_->parts.driver, stream.context);
  return scope.entered() == CUDA_SUCCESS ? call() : scope.entered();
}

AccessSet Launches::LiveBlocks() const {
  AccessSet live;  // without blocks that the job has paused; those paused from outside are waited for
  const TableLock lock(core_->table);
  core_->table.ForEachLiveLocked(lock, [&](Block* block) {
    if (!IsByJobAlone(block->pause.by)) live.AddNew(block->id);
  });
  return live;
}

CUresult Launches::RunClaimed(const AccessSet& needed, const AccessSet& named, StreamRef stream, uint64_t tag,
                              absl::FunctionRef<CUresult()> launch) {
  const bool marked = MarkEntry(stream);
  StreamIndex index = core_->clock.Find(stream);
  if (index == kNoStream) {
    return Refuse(absl::ResourceExhaustedError("more than " + std::to_string(StreamClock::kMaxStreams) +
                                               " streams are alive"));
  }
  Grant grant;
  const bool other_device = stream.context != nullptr && stream.context != core_->parts.context;
  const bool plain =
      &needed == &named && !other_device && core_->parts.audit == nullptr && captures_.load() == 0;
  bool hashes_queued = false;
  const auto in_context = [&] {
    const bool looked = plain && core_->pressure.load() && !core_->stopped.load() &&
                        writes_->Begin(tag, named, grant.pinned, log_->count(), stream.Explicit());
    if (marked) MarkReady(stream);
    const CUresult result = InCallersContext(stream, launch);
    if (looked) writes_->End(stream.Explicit(), result == CUDA_SUCCESS);
    hashes_queued |= looked;
    return result;
  };
  if (absl::Status status = Prepare(needed, &stream, tag, &grant); !status.ok()) {
    return Ended(WithAdvice(status, tag, needed.size()), in_context);
  }
  if (const CUresult opened = OpenToCaller(core_, stream, grant.pinned); opened != CUDA_SUCCESS) {
    claims_->Release(&grant);
    return opened;
  }
  RecordSet(named, BytesOf(named));  // after Prepare: a refused set needs no headroom
  return RunPrepared(needed, named, index, tag, in_context, hashes_queued, &grant);
}

std::string Launches::Advice(uint64_t tag, size_t blocks) const {
  const auto& advice = core_->parts.launch_advice;
  return advice ? advice(tag, blocks) : std::string();
}

absl::Status Launches::WithAdvice(const absl::Status& why, uint64_t tag, size_t blocks) const {
  const std::string words = Advice(tag, blocks);
  if (words.empty() || !absl::IsResourceExhausted(why)) return why;
  return WithText(why, std::string(why.message()) + ". " + words);
}

// A launch that could not be prepared goes to the driver where nothing is moved any more; elsewhere it is
// refused.
CUresult Launches::Ended(const absl::Status& why, absl::FunctionRef<CUresult()> launch) const {
  return core_->stopped.load() ? Bypass(launch) : Refuse(why);
}

std::string Launches::NameOfLaunch(uint64_t tag) const {
  const auto& name = core_->parts.name_of_launch;
  const std::string text = name ? name(tag) : std::string();
  return text.empty() ? "a launch" : "a launch of " + text;
}

absl::Status Launches::AwaitArrival(CUevent arrival) {
  const os::Wait wait(core_->waits, os::WaitKind::kArrival, "a block that is to stay");
  return core_->clock.Await(arrival, wait, core_->stopped);
}

void Launches::RecordWaiter(StreamRef stream, const Grant& grant) {
  const StreamIndex index = core_->clock.Find(stream);
  const TimelineValue before{index, core_->clock.Current(index)};
  if (index == kNoStream || !core_->clock.Cover(before).ok()) return;
  claims_->RecordWaiter(grant, before);
}

// Each attempt claims, maps and fetches, and then waits for the blocks that are on their way.
absl::Status Launches::Prepare(const AccessSet& set, const StreamRef* stream, uint64_t tag, Grant* grant) {
  const auto name = [&] { return stream == nullptr ? "blocks that are to stay" : NameOfLaunch(tag); };
  for (int attempt = 1;; ++attempt) {
    const StreamIndex index = stream == nullptr ? kNoStream : core_->clock.Find(*stream);
    if (core_->pressure.load(std::memory_order_relaxed))
      SPILLWAY_RETURN_IF_ERROR(WaitForRunAhead(BytesOf(set), index, tag));
    grant->tag = tag;
    // The name costs some microseconds, so it is looked up only for sets that may not fit.
    if (reach_->on() && core_->parts.passes_of_launch && BytesOf(set) > core_->options.budget_bytes / 2)
      grant->passes = core_->parts.passes_of_launch(tag);
    absl::Status status = claims_->Claim(set, name, grant);
    if (!status.ok()) return status;
    for (Block* block : grant->to_map) {
      if (absl::Status mapped = faulter_->MapEmpty(block); !mapped.ok()) status = mapped;
    }
    for (Block* block : grant->to_fetch) {
      if (absl::Status started = faulter_->Start(block); !started.ok()) status = started;
    }
    std::vector<CUevent> arrivals;
    if (status.ok()) status = claims_->WaitLaunchable(*grant, name, &arrivals);
    if (status.ok() && !arrivals.empty() && stream != nullptr) RecordWaiter(*stream, *grant);
    for (CUevent arrival : arrivals) {
      if (SPILLWAY_MUTANT(kNoWaitForArrival)) break;
      if (status.ok())
        status = stream != nullptr ? copies_->MakeWait(*stream, arrival) : AwaitArrival(arrival);
    }
    if (status.ok()) return status;
    core_->error.Record(status);
    claims_->Release(grant);
    *grant = Grant();
    // A block that lost its chunks in a race is claimed again many times. A block whose copies fail each time
    // is claimed only a few times.
    const int most = absl::IsAborted(status) ? kMaxAttempts : kMaxFailures;
    if (attempt >= most || core_->stopped.load() || !MayBeTriedAgain(status)) return status;
    // A driver that lacks memory for page tables is asked again after chunks have been given back to it.
    const auto again = [] { return CUDA_SUCCESS; };
    if (absl::IsResourceExhausted(status) && repeat_when_full_(again) != CUDA_SUCCESS) return status;
  }
}

CUresult Launches::RunPrepared(const AccessSet& needed, const AccessSet& named, StreamIndex index,
                               uint64_t tag, absl::FunctionRef<CUresult()> launch, const bool& hashes_queued,
                               Grant* grant) {
  SPILLWAY_DELAY_POINT("launch.under_pins");
  Standstill::Section making(&core_->standstill);
  CUresult result = launch();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    making.Leave();
    result = repeat_when_full_([&] {
      making.Enter();
      const CUresult again = launch();
      if (again == CUDA_ERROR_OUT_OF_MEMORY) making.Leave();
      return again;
    });
  }
  policy::LaunchIndex at = 0;
  if (result == CUDA_SUCCESS) {
    const TimelineValue value =
        log_->Add(index, core_->pressure.load(std::memory_order_relaxed) ? BytesOf(needed) : 0, &at);
    const uint8_t thread = ReadSections::NumberOf(ReadSections::ForThisThread());
    // Blocks that were named and are freed are left out. They have no pin, so their uses may be forgotten at
    // any moment, or be counted as uses of the next life.
    for (Block* block : grant->pinned) {
      if (!SPILLWAY_MUTANT(kPinnedUnrecorded)) RecordLaunchUse(core_->clock, block, value, thread, at);
    }
    if (reach_->on()) reach_->RecordLaunch(grant->pinned, tag, [&] { return Advice(tag, needed.size()); });
  } else if (hashes_queued) {  // the hashes read the blocks although the launch was refused
    const TimelineValue value = core_->clock.QueuedOn(index);
    for (Block* block : grant->pinned) RecordUse(core_->clock, block, value);
  }
  claims_->Release(grant);
  if (result == CUDA_SUCCESS) AfterLaunch(named, index, at, tag);
  core_->error.Record(result);
  return result;
}

CUresult Launches::Refuse(const absl::Status& why) const {
  RecordError(why).IgnoreError();
  const CUresult result = ResultOf(why);
  const bool no_memory = result == CUDA_ERROR_OUT_OF_MEMORY;
  os::ReportLine(std::string("a launch was refused") + (no_memory ? " with out-of-memory: " : ": ") +
                 refusals_->OfThisThread());
  return result;
}

}  // namespace spillway::allocator
