// SequenceTracker finds, launch by launch, the sequence that a job is in, and its place there. It learns
// sequences: an iteration that was marked, one that came twice in a row, or one that came again later. It
// notices when the job leaves its sequence and when it is back in one. The predictor's thread gives it each
// launch and plans for the sequence that it names. It keeps the launches of each sequence as a trace of its
// own. One thread; no call fails.

#ifndef SPILLWAY_POLICY_TRACE_SEQUENCE_TRACKER_H_
#define SPILLWAY_POLICY_TRACE_SEQUENCE_TRACKER_H_

#include <cstdint>
#include <map>
#include <set>
#include <unordered_set>

#include "policy/model/units.h"
#include "policy/trace/iteration_boundaries.h"
#include "policy/trace/iteration_finder.h"
#include "policy/trace/sequences.h"
#include "policy/trace/trace.h"

namespace spillway::policy {

// Counts since the start.
struct SequenceCounts {
  uint64_t entered = 0;   // times that the job entered a sequence
  uint64_t back = 0;      // of these: one that it had followed before
  uint64_t left = 0;      // times that a launch was not the sequence's next
  uint64_t launches = 0;  // launches added
  uint64_t followed = 0;  // of these: the next one of the sequence that the job was in
};

class SequenceTracker {
 public:
  explicit SequenceTracker(const IterationOptions& iterations,
                           const SequenceOptions& sequences = SequenceOptions());

  // Adds launch `index` of `trace`, the next after the one added before. `marked`: the job marked the end of
  // an iteration just before it.
  void Add(const Trace& trace, LaunchIndex index, bool marked);
  // Records that launches are missing before the next one: the job is in no sequence.
  void Restart();

  // Returns the sequence of the launch added last; kNoSequence: none.
  SequenceId sequence() const { return sequence_; }
  // Returns the index at which that sequence's position 0 was, or would have been. Positions count on from
  // there.
  LaunchIndex start() const { return start_; }
  // Returns a number that goes up whenever sequence() or start() has changed.
  uint64_t version() const { return counts_.entered + counts_.left; }

  // The sequence's launches, with the allocations and frees between them, as a trace that begins with launch
  // 0. `sequence` must be known.
  const Trace& IterationOf(SequenceId sequence) const { return iterations_.at(sequence); }
  bool Knows(SequenceId sequence) const { return iterations_.contains(sequence); }
  size_t sequences() const { return iterations_.size(); }
  const SequenceCounts& counts() const { return counts_; }
  // Returns how many of the latest launches the trace must keep, for sequences still to be found.
  LaunchIndex wanted() const;

 private:
  void Follow(LaunchIndex index, uint64_t signature);
  void ForgetSequences();
  void CloseIteration(const Trace& trace, LaunchIndex end);
  KnownSequences::Added Learn(const Trace& trace, LaunchIndex start, LaunchIndex end);
  void FindSequence(const Trace& trace, LaunchIndex index);
  void FindIteration(const Trace& trace, LaunchIndex index);
  void Enter(SequenceId sequence, uint32_t position, uint32_t run, LaunchIndex index);

  const IterationOptions options_;
  KnownSequences known_;
  IterationFinder finder_;
  IterationBoundaries boundaries_;
  std::map<SequenceId, Trace> iterations_;
  std::unordered_set<uint64_t> iterations_seen_;  // by a hash of their launches; of unmarked iterations only

  SequenceId sequence_ = kNoSequence;
  LaunchIndex start_ = 0;
  LaunchIndex entered_at_ = 0;         // the first of the launches in a row that were the sequence's
  LaunchIndex iteration_at_ = kNever;  // beginning of the iteration in progress; kNever: not known
  std::set<SequenceId> entered_before_;
  SequenceCounts counts_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_SEQUENCE_TRACKER_H_
