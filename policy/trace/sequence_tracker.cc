#include "policy/trace/sequence_tracker.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

namespace spillway::policy {
namespace {

// A repeat without a mark in it, in a job that marks its steps, is part of a step unless it goes on for so many runs.
constexpr uint64_t kRunsOfAPhase = 8;
// Launches kept on a path, at least: of what may turn out to be part of a longer one.
constexpr LaunchIndex kKeptOnAPath = 1 << 15;
// Hashes of steps that are remembered; beyond that all are forgotten.
constexpr size_t kMostStepsSeen = 4096;

// Launches start..end-1 with the events before each of them, counted from 0.
Trace Cut(const Trace& trace, LaunchIndex start, LaunchIndex end) {
  Trace cut;
  const auto events = trace.events();
  auto event = std::ranges::lower_bound(events, start, {}, &BlockEvent::before);
  for (LaunchIndex index = start; index < end; ++index) {
    for (; event != events.end() && event->before == index; ++event) {
      if (event->allocated()) {
        cut.AddAllocate(event->block, event->bytes);
      } else {
        cut.AddFree(event->block);
      }
    }
    const LaunchRecord launch = trace.at(index);
    cut.AddLaunch(launch.tag, launch.blocks);
  }
  return cut;
}

}  // namespace

PathTracker::PathTracker(const PeriodOptions& period, const PathOptions& paths)
    : options_(period), path_options_(paths), known_(paths), finder_(period), boundaries_(period.longest) {}

void PathTracker::Add(const Trace& trace, LaunchIndex index, bool marked) {
  const uint64_t signature = trace.at(index).signature;
  ++counts_.launches;
  Follow(index, signature);
  if (marked && !boundaries_.marked()) ForgetPaths();
  if (boundaries_.Add(index, signature, marked)) {
    CloseStep(trace, index);
    step_at_ = index;
  }
  known_.Note(signature);
  finder_.Add(signature);
  if (path_ == kNoPath) FindPath(trace, index);
}

// The job leaves its path when the launch is not the path's next.
void PathTracker::Follow(LaunchIndex index, uint64_t signature) {
  if (path_ == kNoPath) return;
  const std::span<const uint64_t> expected = known_.SignaturesOf(path_);
  const auto position = static_cast<uint32_t>((index - start_) % expected.size());
  if (expected[position] == signature) {
    ++counts_.followed;
    if (position == 0) known_.NoteFollowed(path_, index - entered_at_);
    return;
  }
  known_.NoteLeft(path_, position, index - entered_at_);
  path_ = kNoPath;
  ++counts_.left;
}

// The first mark: what was learnt without any may be a part of a step.
void PathTracker::ForgetPaths() {
  if (path_ != kNoPath) ++counts_.left;
  path_ = kNoPath;
  step_at_ = kNever;
  known_ = KnownPaths(path_options_);
  periods_.clear();
  entered_before_.clear();
}

// The step from step_at_ up to `end` is a path, unless it was gone through on one: at once when the job marks its
// steps, else when the same step comes again, for then its beginning is a guess.
void PathTracker::CloseStep(const Trace& trace, LaunchIndex end) {
  const LaunchIndex start = step_at_;
  if (start == kNever || start < trace.begin()) return;
  if (end - start < options_.shortest || end - start > options_.longest) return;
  if (path_ != kNoPath && entered_at_ <= start) return;
  if (!boundaries_.marked()) {
    SignatureBuilder step(end - start);
    for (LaunchIndex index = start; index < end; ++index) step.Add(trace.at(index).signature);
    if (steps_seen_.size() >= kMostStepsSeen) steps_seen_.clear();
    if (!steps_seen_.insert(step.value()).second) Learn(trace, start, end);
    return;
  }
  Learn(trace, start, end);
}

KnownPaths::Added PathTracker::Learn(const Trace& trace, LaunchIndex start, LaunchIndex end) {
  std::vector<uint64_t> signatures;
  signatures.reserve(end - start);
  for (LaunchIndex index = start; index < end; ++index) signatures.push_back(trace.at(index).signature);
  const KnownPaths::Added added = known_.Add(signatures);
  if (!added.is_new) return added;
  periods_[added.path] = Cut(trace, start, end);
  std::erase_if(periods_, [this](const auto& one) { return !known_.Contains(one.first); });
  std::erase_if(entered_before_, [this](PathId path) { return !known_.Contains(path); });
  if (!known_.Contains(path_)) path_ = kNoPath;
  return added;
}

void PathTracker::FindPath(const Trace& trace, LaunchIndex index) {
  const std::optional<PathPlace> place = known_.Recognise();
  if (!place) return FindPeriod(trace, index);
  // Where marks are missing, a path may begin anywhere: learnt from where the job came onto it.
  if (place->clear && place->run < KnownPaths::kLongestRun && !boundaries_.marked()) {
    const auto period = static_cast<uint32_t>(known_.SignaturesOf(place->path).size());
    const uint32_t back = (place->run - 1) % period;
    known_.NoteEntry(place->path, (place->position + period - back) % period);
  }
  Enter(place->path, place->position, place->run, index);
}

// What has just been done twice.
void PathTracker::FindPeriod(const Trace& trace, LaunchIndex index) {
  const uint32_t period = finder_.Found(trace, index + 1);
  if (period == 0) return;
  const LaunchIndex end = index + 1;
  const bool has_boundary = step_at_ != kNever && step_at_ + period >= end;
  if (boundaries_.marked() && !has_boundary && finder_.run() < kRunsOfAPhase * period) return;
  LaunchIndex start = end - period;
  if (has_boundary && step_at_ >= trace.begin() + period) start = step_at_ - period;
  if (start < trace.begin()) return;
  const KnownPaths::Added added = Learn(trace, start, start + period);
  if (added.path != kNoPath) {
    Enter(added.path, static_cast<uint32_t>((added.position + (index - start)) % period), period, index);
  }
}

// The last `run` launches were the path's.
void PathTracker::Enter(PathId path, uint32_t position, uint32_t run, LaunchIndex index) {
  path_ = path;
  start_ = index - position;
  if (index < position) start_ += known_.SignaturesOf(path).size();
  entered_at_ = index + 1 - std::min<LaunchIndex>(run, index + 1);
  ++counts_.entered;
  if (!entered_before_.insert(path).second) ++counts_.back;
}

void PathTracker::Restart() {
  if (path_ != kNoPath) ++counts_.left;
  path_ = kNoPath;
  step_at_ = kNever;
  known_.ForgetLatest();
  finder_.Restart();
  boundaries_.Restart();
}

LaunchIndex PathTracker::wanted() const {
  const LaunchIndex most = 2 * LaunchIndex{options_.longest};
  if (path_ == kNoPath) return most;
  return std::min<LaunchIndex>(most,
                               std::max<LaunchIndex>(kKeptOnAPath, 4 * known_.SignaturesOf(path_).size()));
}

}  // namespace spillway::policy
