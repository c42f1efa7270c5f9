#include "integration/prediction/launch_timer.h"

#include <algorithm>
#include <cmath>

namespace spillway::integration {
namespace {

using allocator::StreamRef;
using policy::kNever;
using policy::LaunchIndex;

// A job with this many samples and no known iteration gets the later share, since nothing is planned from its
// times.
constexpr uint64_t kSamplesWithoutIteration = 4096;
constexpr size_t kMaxKindsKept = 1 << 16;
// A recording that takes longer was waiting for a place in the stream's queue, as the launch itself would, or
// for a processor.
constexpr int64_t kLongestRecording = 20'000;

// The address of a thread-local identifies the thread.
thread_local char t_identity;
const void* Me() { return &t_identity; }

bool SameStream(const StreamRef& a, const StreamRef& b) {
  return a.Explicit() == b.Explicit() && a.context == b.context;
}

}  // namespace

LaunchTimer::LaunchTimer(const LaunchTimerOptions& options, std::atomic<bool>* wants_marks)
    : options_(options), wants_marks_(wants_marks), accrued_at_(options.clock->NowNanos()) {}

// ---- Launching threads.

bool LaunchTimer::StartedHere() const { return thread_.load(std::memory_order_relaxed) == Me(); }

void LaunchTimer::OnEnter(const StreamRef& stream) {
  if (phase_.load(std::memory_order_acquire) != Phase::kRunning || !Take(Phase::kRunning)) return;
  const Sample& sample = samples_[samples_filled_.load(std::memory_order_relaxed) % kSamples];
  if (interruptions_before_ == interruptions_.load(std::memory_order_relaxed)) {
    if (!MayEndOn(stream)) {
      Finish(Outcome::kAbandoned);
    } else if (Record(sample.end, stream_) == CUDA_SUCCESS) {
      Finish(Outcome::kMeasured);
    }
  }
  Settle(last_);
}

void LaunchTimer::OnReady(const StreamRef& stream) {
  const Phase phase = phase_.load(std::memory_order_acquire);
  // A sample that started on this thread and comes here again: the launch before failed, or is repeated.
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
  const Sample& sample = samples_[samples_filled_.load(std::memory_order_relaxed) % kSamples];
  interruptions_before_ = interruptions_.load(std::memory_order_relaxed);
  stream_ = stream;
  thread_.store(Me(), std::memory_order_relaxed);
  return Record(sample.start, stream) == CUDA_SUCCESS;
}

// Takes the report of launch `index`: begins the next sample when it is time, or learns which launch is being
// sampled.
void LaunchTimer::RecordLaunch(LaunchIndex index) {
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::kIdle && Take(phase)) {
    Settle(index);
    return;
  }
  if (phase != Phase::kStarted || !StartedHere() || !Take(phase)) return;
  Sample& sample = samples_[samples_filled_.load(std::memory_order_relaxed) % kSamples];
  sample.index = last_ = index;
  if (ends_ == Ends::kAtNextLaunch) {
    phase_.store(Phase::kRunning, std::memory_order_release);
    return;
  }
  if (Record(sample.end, stream_) == CUDA_SUCCESS) Finish(Outcome::kMeasured);
  Settle(index);
}

// Returns whether an event that this thread records now on `stream` shows when the sampled launch was over.
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
  const uint64_t filled = samples_filled_.load(std::memory_order_relaxed);
  samples_[filled % kSamples].outcome = outcome;
  samples_filled_.store(filled + 1, std::memory_order_release);
}

// `index` was the latest launch. If a target is due, the next launch is sampled; otherwise the timer waits
// for the next target.
void LaunchTimer::Settle(LaunchIndex index) {
  last_ = std::max(last_, index);
  const uint64_t end = targets_filled_.load(std::memory_order_acquire);
  uint64_t taken = targets_taken_.load(std::memory_order_relaxed);
  const bool has_place =
      samples_filled_.load(std::memory_order_relaxed) - samples_taken_.load(std::memory_order_acquire) <
      kSamples;
  bool due = false;
  for (; taken < end && targets_[taken % kTargets].index <= last_ + 1; ++taken) {
    due = true;
    ends_ = targets_[taken % kTargets].ends;
  }
  const LaunchIndex next = taken < end ? targets_[taken % kTargets].index : kNever;
  targets_taken_.store(taken, std::memory_order_release);
  const bool armed = due && has_place;
  wants_marks_->store(armed, std::memory_order_relaxed);
  next_.store(armed ? 0 : next, std::memory_order_relaxed);
  phase_.store(armed ? Phase::kArmed : Phase::kIdle, std::memory_order_release);
}

// ---- The reader.

void LaunchTimer::Poll(const policy::Trace& trace, uint32_t iteration_launches,
                       const policy::BlockSizes& sizes, policy::KernelTimes* times) {
  if (events_ == Events::kFailed || (events_ == Events::kNone && trace.end() == 0)) return;
  const allocator::ScopedContext scope(options_.driver, options_.context);
  if (events_ == Events::kNone && !CreateEvents()) return;
  Collect(trace, sizes, times);
  Accrue();
  Choose(trace, iteration_launches, sizes, *times);
}

// The events are never destroyed, since they may still be in a stream when the process ends.
bool LaunchTimer::CreateEvents() {
  events_ = Events::kFailed;
  for (Sample& sample : samples_) {
    for (CUevent* event : {&sample.start, &sample.end}) {
      if (options_.driver->cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
    }
  }
  events_ = Events::kThere;
  return true;
}

void LaunchTimer::Collect(const policy::Trace& trace, const policy::BlockSizes& sizes,
                          policy::KernelTimes* times) {
  const uint64_t filled = samples_filled_.load(std::memory_order_acquire);
  uint64_t taken = samples_taken_.load(std::memory_order_relaxed);
  for (; taken < filled; ++taken) {
    const Sample& sample = samples_[taken % kSamples];
    // The sampled launch, or the one behind it, has not been taken from the recorder yet.
    if (sample.index + 1 >= trace.end()) break;
    const bool abandoned = sample.outcome == Outcome::kAbandoned;
    const CUresult reached = abandoned ? CUDA_SUCCESS : options_.driver->cuEventQuery(sample.end);
    if (reached == CUDA_ERROR_NOT_READY) break;
    const bool known = sample.index >= trace.begin();
    const policy::LaunchKind kind =
        known ? policy::KindAt(trace, sample.index, sample.index + 1, sizes) : policy::LaunchKind();
    if (abandoned) {
      ++abandoned_;
      if (ends_right_away_.size() >= kMaxKindsKept) ends_right_away_.clear();
      if (known) ends_right_away_.insert(kind.own);
      continue;
    }
    float milliseconds = 0;
    if (reached != CUDA_SUCCESS ||
        options_.driver->cuEventElapsedTime(&milliseconds, sample.start, sample.end) != CUDA_SUCCESS ||
        !known) {
      continue;
    }
    ++measured_;
    times->Add(kind, std::llround(static_cast<double>(milliseconds) * 1e6));
  }
  samples_taken_.store(taken, std::memory_order_release);
}

// Adds the tokens for the time that has passed. Each token pays for one sample.
void LaunchTimer::Accrue() {
  const int64_t now = options_.clock->NowNanos();
  const uint64_t recorded = recorded_.load(std::memory_order_relaxed);
  const double host =
      recorded == 0 ? 0 : static_cast<double>(host_nanos_.load(std::memory_order_relaxed)) / recorded;
  const bool at_first = iteration_launches_ == 0 ? measured_ < kSamplesWithoutIteration : SamplesKinds();
  const double share = at_first ? options_.share_at_first : options_.share_later;
  const double cost = static_cast<double>(kSampleNanos) + 2 * host;
  tokens_ = std::min<double>(kTargets, tokens_ + static_cast<double>(now - accrued_at_) * share / cost);
  accrued_at_ = now;
}

void LaunchTimer::Choose(const policy::Trace& trace, uint32_t iteration_launches,
                         const policy::BlockSizes& sizes, const policy::KernelTimes& times) {
  if (iteration_launches != 0 && iteration_launches != iteration_launches_) {
    iteration_launches_ = iteration_launches;
    known_launches_ = tries_ = 0;
  }
  std::vector<Target> chosen;
  const bool all_taken = targets_taken_.load(std::memory_order_acquire) == targets_filled_;
  if (all_taken && tokens_ >= kFewestTokens) {
    if (iteration_launches != 0 && SamplesKinds()) {
      ChooseByKind(trace, iteration_launches, sizes, times, &chosen);
    } else {
      ChooseAnywhere(trace, iteration_launches, sizes, &chosen);
    }
    seen_to_ = trace.end();
  }
  Publish(chosen);
}

// Returns the launch in the trace that the future launch at `index` will be like, with another one behind it;
// kNever if the trace has dropped it.
LaunchIndex LaunchTimer::Alike(const policy::Trace& trace, LaunchIndex index, uint32_t iteration_launches) {
  const LaunchIndex back = ((index + 1 - trace.end()) / iteration_launches + 1) * iteration_launches;
  return index < trace.begin() + back ? kNever : index - back;
}

LaunchTimer::Target LaunchTimer::TargetOf(LaunchIndex index, const policy::LaunchKind& kind) const {
  return {index, ends_right_away_.contains(kind.own) ? Ends::kRightAway : Ends::kAtNextLaunch};
}

// Chooses future launches, one of each kind that was never measured. If there is none, chooses launches in
// places that have too few samples.
void LaunchTimer::ChooseByKind(const policy::Trace& trace, uint32_t iteration_launches,
                               const policy::BlockSizes& sizes, const policy::KernelTimes& times,
                               std::vector<Target>* chosen) {
  const LaunchIndex begin = std::clamp(searched_to_, trace.end() + 1, trace.end() + iteration_launches);
  const LaunchIndex end = begin + std::min(iteration_launches, kLaunchesAhead);
  const auto most = static_cast<size_t>(tokens_);
  std::vector<Target> few;
  std::unordered_set<uint64_t> kinds;
  bool all_known = true;
  for (searched_to_ = begin; searched_to_ < end && chosen->size() < most; ++searched_to_) {
    const LaunchIndex alike = Alike(trace, searched_to_, iteration_launches);
    if (alike == kNever) break;
    const policy::LaunchKind kind = policy::KindAt(trace, alike, alike + 1, sizes);
    if (times.SamplesOfPlace(kind) >= kEnoughSamples) continue;
    all_known = false;
    if (times.SamplesOfKind(kind) == 0) {
      if (kinds.insert(kind.own).second) chosen->push_back(TargetOf(searched_to_, kind));
    } else if (few.size() < most) {
      few.push_back(TargetOf(searched_to_, kind));
    }
  }
  known_launches_ = all_known ? known_launches_ + (searched_to_ - begin) : 0;
  if (chosen->empty()) chosen->swap(few);
  tries_ += chosen->size();
}

// Chooses launches spread over the next iteration, or, if none is known, over as many launches as came
// lately.
void LaunchTimer::ChooseAnywhere(const policy::Trace& trace, uint32_t iteration_launches,
                                 const policy::BlockSizes& sizes, std::vector<Target>* chosen) {
  const uint64_t lately = trace.end() - std::min(seen_to_, trace.end());
  const uint64_t launches =
      std::max<uint64_t>(iteration_launches != 0 ? iteration_launches : lately, kTargets);
  const auto count = static_cast<uint64_t>(tokens_);
  for (uint64_t i = 0; i < count; ++i) {
    const LaunchIndex index = trace.end() + launches * i / count + random_() % (launches / count);
    const LaunchIndex alike = iteration_launches != 0 ? Alike(trace, index, iteration_launches) : kNever;
    chosen->push_back(alike == kNever ? Target{index}
                                      : TargetOf(index, policy::KindAt(trace, alike, alike + 1, sizes)));
  }
}

void LaunchTimer::Publish(const std::vector<Target>& chosen) {
  uint64_t filled = targets_filled_.load(std::memory_order_relaxed);
  for (const Target& target : chosen) targets_[filled++ % kTargets] = target;
  targets_filled_.store(filled, std::memory_order_release);
  tokens_ -= static_cast<double>(chosen.size());
  if (targets_taken_.load(std::memory_order_acquire) == filled) return;
  // This matters even if nothing was chosen: a thread that settled meanwhile may have seen no target. The
  // next launch settles again then.
  LaunchIndex none = kNever;
  next_.compare_exchange_strong(none, 1);
}

}  // namespace spillway::integration
