#include "integration/prediction/launch_timer.h"

#include <algorithm>
#include <cmath>

namespace spillway::integration {
namespace {

using allocator::StreamRef;
using policy::kNever;
using policy::LaunchIndex;

// With so many samples and still no period, the job gets the later share: nothing is planned from its times.
constexpr uint64_t kSamplesWithoutPeriod = 4096;
constexpr size_t kMostKindsKept = 1 << 16;
// A recording that takes longer waits for room in the stream's queue, as the launch itself would, or for a
// processor.
constexpr int64_t kLongestRecording = 20'000;

// An address that is this thread's alone names it.
thread_local char t_identity;
const void* Me() { return &t_identity; }

bool SameStream(const StreamRef& a, const StreamRef& b) {
  return a.Explicit() == b.Explicit() && a.context == b.context;
}

}  // namespace

LaunchTimer::LaunchTimer(const LaunchTimerOptions& options, std::atomic<bool>* wants_marks)
    : options_(options), wants_marks_(wants_marks), accrued_at_(options.clock->NowNanos()) {}

// ---- On launching threads.

bool LaunchTimer::StartedHere() const { return thread_.load(std::memory_order_relaxed) == Me(); }

void LaunchTimer::OnEnter(const StreamRef& stream) {
  if (phase_.load(std::memory_order_acquire) != Phase::kRunning || !Take(Phase::kRunning)) return;
  const Slot& slot = slots_[slots_filled_.load(std::memory_order_relaxed) % kSlots];
  if (interruptions_before_ == interruptions_.load(std::memory_order_relaxed)) {
    if (!MayEndOn(stream)) {
      Finish(Outcome::kAbandoned);
    } else if (Record(slot.end, stream_) == CUDA_SUCCESS) {
      Finish(Outcome::kMeasured);
    }
  }
  Settle(last_);
}

void LaunchTimer::OnReady(const StreamRef& stream) {
  const Phase phase = phase_.load(std::memory_order_acquire);
  // Started and here again: the launch before failed, or is repeated.
  const bool again = phase == Phase::kStarted && StartedHere();
  if ((phase != Phase::kArmed && !again) || !Take(phase)) return;
  if (RecordStart(stream)) {
    phase_.store(Phase::kStarted, std::memory_order_release);
  } else {
    Settle(last_);
  }
}

bool LaunchTimer::RecordStart(const StreamRef& stream) {
  if (stream.context != nullptr && stream.context != options_.context) return false;
  const Slot& slot = slots_[slots_filled_.load(std::memory_order_relaxed) % kSlots];
  interruptions_before_ = interruptions_.load(std::memory_order_relaxed);
  stream_ = stream;
  thread_.store(Me(), std::memory_order_relaxed);
  return Record(slot.start, stream) == CUDA_SUCCESS;
}

// The launch `index` is reported: begins the next sample when it is time, or learns which launch is being
// sampled.
void LaunchTimer::Note(LaunchIndex index) {
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::kIdle && Take(phase)) {
    Settle(index);
    return;
  }
  if (phase != Phase::kStarted || !StartedHere() || !Take(phase)) return;
  Slot& slot = slots_[slots_filled_.load(std::memory_order_relaxed) % kSlots];
  slot.index = last_ = index;
  if (ends_ == Ends::kAtNextLaunch) {
    phase_.store(Phase::kRunning, std::memory_order_release);
    return;
  }
  if (Record(slot.end, stream_) == CUDA_SUCCESS) Finish(Outcome::kMeasured);
  Settle(index);
}

// Whether an event recorded now on the stream of the sample, by this thread, tells when the sampled launch
// was over.
bool LaunchTimer::MayEndOn(const StreamRef& stream) const {
  return SameStream(stream, stream_) && (!stream_.IsPerThread() || StartedHere());
}

CUresult LaunchTimer::Record(CUevent event, const StreamRef& stream) {
  const int64_t begin = options_.clock->NowNanos();
  const CUresult result = options_.driver->cuEventRecord(event, stream.Explicit());
  const int64_t spent = std::min(options_.clock->NowNanos() - begin, kLongestRecording);
  host_nanos_.fetch_add(static_cast<uint64_t>(spent), std::memory_order_relaxed);
  recorded_.fetch_add(1, std::memory_order_relaxed);
  return result;
}

// Hands the open sample to the reader.
void LaunchTimer::Finish(Outcome outcome) {
  const uint64_t filled = slots_filled_.load(std::memory_order_relaxed);
  slots_[filled % kSlots].outcome = outcome;
  slots_filled_.store(filled + 1, std::memory_order_release);
}

// `index` was the latest launch: the next one is sampled if a target is due, else the targets are waited for.
void LaunchTimer::Settle(LaunchIndex index) {
  last_ = std::max(last_, index);
  const uint64_t end = targets_filled_.load(std::memory_order_acquire);
  uint64_t taken = targets_taken_.load(std::memory_order_relaxed);
  const bool room =
      slots_filled_.load(std::memory_order_relaxed) - slots_taken_.load(std::memory_order_acquire) < kSlots;
  bool due = false;
  for (; taken < end && targets_[taken % kTargets].index <= last_ + 1; ++taken) {
    due = true;
    ends_ = targets_[taken % kTargets].ends;
  }
  const LaunchIndex next = taken < end ? targets_[taken % kTargets].index : kNever;
  targets_taken_.store(taken, std::memory_order_release);
  const bool armed = due && room;
  wants_marks_->store(armed, std::memory_order_relaxed);
  next_.store(armed ? 0 : next, std::memory_order_relaxed);
  phase_.store(armed ? Phase::kArmed : Phase::kIdle, std::memory_order_release);
}

// ---- The reader's.

void LaunchTimer::Step(const policy::Trace& trace, uint32_t period, const policy::BlockSizes& sizes,
                       policy::KernelTimes* times) {
  if (events_ == Events::kFailed || (events_ == Events::kNone && trace.end() == 0)) return;
  const allocator::ScopedContext scope(options_.driver, options_.context);
  if (events_ == Events::kNone && !CreateEvents()) return;
  Collect(trace, sizes, times);
  Accrue();
  Choose(trace, period, sizes, *times);
}

// Never destroyed: they may still be in a stream when the process ends.
bool LaunchTimer::CreateEvents() {
  events_ = Events::kFailed;
  for (Slot& slot : slots_) {
    for (CUevent* event : {&slot.start, &slot.end}) {
      if (options_.driver->cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
    }
  }
  events_ = Events::kThere;
  return true;
}

uint64_t LaunchTimer::KindOfLaunch(const policy::Trace& trace, LaunchIndex index,
                                   const policy::BlockSizes& sizes) {
  const policy::LaunchRecord launch = trace.at(index);
  scratch_.clear();
  for (const policy::TraceBlock block : launch.blocks) {
    const auto size = sizes.find(block);
    scratch_.push_back(size == sizes.end() ? 0 : size->second);
  }
  return policy::KindOf(launch.tag, scratch_);
}

void LaunchTimer::Collect(const policy::Trace& trace, const policy::BlockSizes& sizes,
                          policy::KernelTimes* times) {
  const uint64_t filled = slots_filled_.load(std::memory_order_acquire);
  uint64_t taken = slots_taken_.load(std::memory_order_relaxed);
  for (; taken < filled; ++taken) {
    const Slot& slot = slots_[taken % kSlots];
    if (slot.index >= trace.end()) break;  // its launch has not been taken from the recorder
    const bool known = slot.index >= trace.begin();
    if (slot.outcome == Outcome::kAbandoned) {
      ++abandoned_;
      if (ends_right_away_.size() >= kMostKindsKept) ends_right_away_.clear();
      if (known) ends_right_away_.insert(KindOfLaunch(trace, slot.index, sizes));
      continue;
    }
    const CUresult reached = options_.driver->cuEventQuery(slot.end);
    if (reached == CUDA_ERROR_NOT_READY) break;
    float milliseconds = 0;
    if (reached != CUDA_SUCCESS ||
        options_.driver->cuEventElapsedTime(&milliseconds, slot.start, slot.end) != CUDA_SUCCESS || !known) {
      continue;
    }
    ++measured_;
    times->Add(KindOfLaunch(trace, slot.index, sizes), std::llround(static_cast<double>(milliseconds) * 1e6));
  }
  slots_taken_.store(taken, std::memory_order_release);
}

// A sample may be taken for each token; they come with the time that passes.
void LaunchTimer::Accrue() {
  const int64_t now = options_.clock->NowNanos();
  const uint64_t recorded = recorded_.load(std::memory_order_relaxed);
  const double host =
      recorded == 0 ? 0 : static_cast<double>(host_nanos_.load(std::memory_order_relaxed)) / recorded;
  const bool at_first = period_ == 0 ? measured_ < kSamplesWithoutPeriod : LooksForKinds();
  const double share = at_first ? options_.share_at_first : options_.share_later;
  const double cost = static_cast<double>(kSampleNanos) + 2 * host;
  tokens_ = std::min<double>(kTargets, tokens_ + static_cast<double>(now - accrued_at_) * share / cost);
  accrued_at_ = now;
}

void LaunchTimer::Choose(const policy::Trace& trace, uint32_t period, const policy::BlockSizes& sizes,
                         const policy::KernelTimes& times) {
  if (period != 0 && period != period_) {
    period_ = period;
    known_launches_ = tries_ = 0;
  }
  std::vector<Target> chosen;
  const bool all_taken = targets_taken_.load(std::memory_order_acquire) == targets_filled_;
  if (all_taken && tokens_ >= kFewestTokens) {
    if (period != 0 && LooksForKinds()) {
      ChooseByKind(trace, period, sizes, times, &chosen);
    } else {
      ChooseAnywhere(trace, period, sizes, &chosen);
    }
    seen_to_ = trace.end();
  }
  Publish(chosen);
}

// The launch before the trace's end that `index`, to come, will be like; kNever when it is forgotten.
LaunchIndex LaunchTimer::Alike(const policy::Trace& trace, LaunchIndex index, uint32_t period) {
  const LaunchIndex back = ((index - trace.end()) / period + 1) * period;
  return index < trace.begin() + back ? kNever : index - back;
}

LaunchTimer::Target LaunchTimer::TargetOf(LaunchIndex index, uint64_t kind) const {
  return {index, ends_right_away_.contains(kind) ? Ends::kRightAway : Ends::kAtNextLaunch};
}

// One launch of each kind that was never measured, of those to come; where there is none, of each that has
// too few samples.
void LaunchTimer::ChooseByKind(const policy::Trace& trace, uint32_t period, const policy::BlockSizes& sizes,
                               const policy::KernelTimes& times, std::vector<Target>* chosen) {
  const LaunchIndex begin = std::clamp(looked_to_, trace.end() + 1, trace.end() + period);
  const LaunchIndex end = begin + std::min(period, kLaunchesAhead);
  const auto most = static_cast<size_t>(tokens_);
  std::vector<Target> few;
  std::unordered_set<uint64_t> kinds;
  for (looked_to_ = begin; looked_to_ < end && chosen->size() < most; ++looked_to_) {
    const LaunchIndex alike = Alike(trace, looked_to_, period);
    if (alike == kNever) break;
    const uint64_t kind = KindOfLaunch(trace, alike, sizes);
    const uint32_t samples = times.SamplesOf(kind);
    if (samples >= kEnoughSamples || !kinds.insert(kind).second) continue;
    if (samples == 0) chosen->push_back(TargetOf(looked_to_, kind));
    if (samples != 0 && few.size() < most) few.push_back(TargetOf(looked_to_, kind));
  }
  known_launches_ = kinds.empty() ? known_launches_ + (looked_to_ - begin) : 0;
  if (chosen->empty()) chosen->swap(few);
  tries_ += chosen->size();
}

// Launches spread over a period to come, or, when there is none, over as many as came lately.
void LaunchTimer::ChooseAnywhere(const policy::Trace& trace, uint32_t period, const policy::BlockSizes& sizes,
                                 std::vector<Target>* chosen) {
  const uint64_t lately = trace.end() - std::min(seen_to_, trace.end());
  const uint64_t launches = std::max<uint64_t>(period != 0 ? period : lately, kTargets);
  const auto count = static_cast<uint64_t>(tokens_);
  for (uint64_t i = 0; i < count; ++i) {
    const LaunchIndex index = trace.end() + launches * i / count + random_() % (launches / count);
    const LaunchIndex alike = period != 0 ? Alike(trace, index, period) : kNever;
    chosen->push_back(alike == kNever ? Target{index} : TargetOf(index, KindOfLaunch(trace, alike, sizes)));
  }
}

void LaunchTimer::Publish(const std::vector<Target>& chosen) {
  uint64_t filled = targets_filled_.load(std::memory_order_relaxed);
  for (const Target& target : chosen) targets_[filled++ % kTargets] = target;
  targets_filled_.store(filled, std::memory_order_release);
  tokens_ -= static_cast<double>(chosen.size());
  if (targets_taken_.load(std::memory_order_acquire) == filled) return;
  // Also when nothing is new: who settled meanwhile may have seen no target. A launch that comes at once
  // settles.
  LaunchIndex none = kNever;
  next_.compare_exchange_strong(none, 1);
}

}  // namespace spillway::integration
