#include "policy/trace/sequence_tracker.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

namespace spillway::policy {
namespace {

// If a job marks its iterations, a repeat without a mark in it is part of an iteration, unless it goes on for
// this many runs.
constexpr uint64_t kRunsOfAPhase = 8;
// Launches kept at least while the job is in a sequence, which may turn out to be part of a longer one.
constexpr LaunchIndex kKeptOnASequence = 1 << 15;
// The number of iterations whose hashes are remembered. If there are more, all are forgotten.
constexpr size_t kMaxIterationsSeen = 4096;

// Returns launches start..end-1 with the events before each of them, counted from 0.
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

SequenceTracker::SequenceTracker(const IterationOptions& iterations, const SequenceOptions& sequences)
    : options_(iterations), known_(sequences), finder_(iterations), boundaries_(iterations.longest) {}

void SequenceTracker::Add(const Trace& trace, LaunchIndex index, bool marked) {
  const uint64_t signature = trace.at(index).signature;
  ++counts_.launches;
  Follow(index, signature);
  if (marked && !boundaries_.marked()) ForgetSequences();
  if (boundaries_.Add(index, signature, marked)) {
    CloseIteration(trace, index);
    iteration_at_ = index;
  }
  known_.Record(signature);
  finder_.Add(signature);
  if (sequence_ == kNoSequence) FindSequence(trace, index);
}

// The job leaves its sequence with a launch that is not the sequence's next.
void SequenceTracker::Follow(LaunchIndex index, uint64_t signature) {
  if (sequence_ == kNoSequence) return;
  const std::span<const uint64_t> expected = known_.SignaturesOf(sequence_);
  const auto position = static_cast<uint32_t>((index - start_) % expected.size());
  if (expected[position] == signature) {
    ++counts_.followed;
    if (position == 0) known_.RecordFollowed(sequence_, index - entered_at_);
    return;
  }
  known_.RecordLeft(sequence_, position, index - entered_at_);
  sequence_ = kNoSequence;
  ++counts_.left;
}

// Forgets everything at the job's first mark: a sequence that was learned without marks may be a part of an
// iteration.
void SequenceTracker::ForgetSequences() {
  if (sequence_ != kNoSequence) ++counts_.left;
  sequence_ = kNoSequence;
  iteration_at_ = kNever;
  known_.Clear();
  iterations_.clear();
  entered_before_.clear();
}

// Makes the iteration from iteration_at_ up to `end` a sequence, unless the job was in one from its
// beginning. This happens at once if the job marks its iterations. Otherwise it happens when the same
// iteration comes again, since its beginning is a guess.
void SequenceTracker::CloseIteration(const Trace& trace, LaunchIndex end) {
  const LaunchIndex start = iteration_at_;
  if (start == kNever || start < trace.begin()) return;
  if (end - start < options_.shortest || end - start > options_.longest) return;
  if (sequence_ != kNoSequence && entered_at_ <= start) return;
  if (!boundaries_.marked()) {
    SignatureBuilder iteration(end - start);
    for (LaunchIndex index = start; index < end; ++index) iteration.Add(trace.at(index).signature);
    if (iterations_seen_.size() >= kMaxIterationsSeen) iterations_seen_.clear();
    if (!iterations_seen_.insert(iteration.value()).second) Learn(trace, start, end);
    return;
  }
  Learn(trace, start, end);
}

KnownSequences::Added SequenceTracker::Learn(const Trace& trace, LaunchIndex start, LaunchIndex end) {
  std::vector<uint64_t> signatures;
  signatures.reserve(end - start);
  for (LaunchIndex index = start; index < end; ++index) signatures.push_back(trace.at(index).signature);
  const KnownSequences::Added added = known_.Add(signatures);
  if (!added.is_new) return added;
  iterations_[added.sequence] = Cut(trace, start, end);
  std::erase_if(iterations_, [this](const auto& one) { return !known_.Contains(one.first); });
  std::erase_if(entered_before_, [this](SequenceId sequence) { return !known_.Contains(sequence); });
  if (!known_.Contains(sequence_)) sequence_ = kNoSequence;
  return added;
}

void SequenceTracker::FindSequence(const Trace& trace, LaunchIndex index) {
  const std::optional<SequencePlace> place = known_.Recognize();
  if (!place) return FindIteration(trace, index);
  // A sequence may begin anywhere if there are no marks. The launch at which the job entered it is worth
  // remembering.
  if (place->clear && place->run < KnownSequences::kLongestRun && !boundaries_.marked()) {
    const auto iteration_launches = static_cast<uint32_t>(known_.SignaturesOf(place->sequence).size());
    const uint32_t back = (place->run - 1) % iteration_launches;
    known_.RecordEntry(place->sequence, (place->position + iteration_launches - back) % iteration_launches);
  }
  Enter(place->sequence, place->position, place->run, index);
}

// Makes a sequence of what the job has just done twice.
void SequenceTracker::FindIteration(const Trace& trace, LaunchIndex index) {
  const LaunchIndex end = index + 1;
  const uint32_t iteration_launches = finder_.Repeats();
  if (iteration_launches == 0) return;
  const bool has_boundary = iteration_at_ != kNever && iteration_at_ + iteration_launches >= end;
  if (boundaries_.marked() && !has_boundary && finder_.run() < kRunsOfAPhase * iteration_launches) return;
  if (finder_.Found(trace, end) == 0) return;  // compares each launch of the iteration
  LaunchIndex start = end - iteration_launches;
  if (has_boundary && iteration_at_ >= trace.begin() + iteration_launches)
    start = iteration_at_ - iteration_launches;
  if (start < trace.begin()) return;
  const KnownSequences::Added added = Learn(trace, start, start + iteration_launches);
  if (added.sequence != kNoSequence) {
    Enter(added.sequence, static_cast<uint32_t>((added.position + (index - start)) % iteration_launches),
          iteration_launches, index);
  }
}

// The last `run` launches were the sequence's.
void SequenceTracker::Enter(SequenceId sequence, uint32_t position, uint32_t run, LaunchIndex index) {
  sequence_ = sequence;
  start_ = index - position;
  if (index < position) start_ += known_.SignaturesOf(sequence).size();
  entered_at_ = index + 1 - std::min<LaunchIndex>(run, index + 1);
  ++counts_.entered;
  if (!entered_before_.insert(sequence).second) ++counts_.back;
}

void SequenceTracker::Restart() {
  if (sequence_ != kNoSequence) ++counts_.left;
  sequence_ = kNoSequence;
  iteration_at_ = kNever;
  known_.ForgetLatest();
  finder_.Restart();
  boundaries_.Restart();
}

LaunchIndex SequenceTracker::wanted() const {
  const LaunchIndex most = 2 * LaunchIndex{options_.longest};
  if (sequence_ == kNoSequence) return most;
  return std::min<LaunchIndex>(
      most, std::max<LaunchIndex>(kKeptOnASequence, 4 * known_.SignaturesOf(sequence_).size()));
}

}  // namespace spillway::policy
