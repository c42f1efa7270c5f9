// JobFollower: the job's launches, and its place in a sequence. It reads TraceRecorder's rings, keeps the
// launches that are still needed, the sizes of blocks and the marks, and gives each launch to the
// SequenceTracker. Only the predictor's thread uses it: there is no lock. No call fails: the job's place is
// forgotten where launches were lost.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_JOB_FOLLOWER_H_
#define SPILLWAY_INTEGRATION_PREDICTION_JOB_FOLLOWER_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/functional/function_ref.h"
#include "integration/prediction/trace_recorder.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/sequence_tracker.h"
#include "policy/trace/trace.h"

namespace spillway::integration {

class JobFollower {
 public:
  explicit JobFollower(const policy::IterationOptions& options) : tracker_(options) {}

  // Takes what was recorded, up to kLaunchesAtATime. False: launches were lost, and the job's place with
  // them.
  bool Take(TraceRecorder* recorder);
  // Shows the tracker what Take took; `see` sees each launch after the tracker. True when there was any.
  bool Follow(absl::FunctionRef<void(policy::LaunchIndex, const policy::LaunchRecord&)> see);
  // Drops the launches that the tracker no longer needs.
  void Trim();

  const policy::Trace& trace() const { return trace_; }
  const policy::SequenceTracker& tracker() const { return tracker_; }
  // The size of each block; what a move of it copies, by the latest tensor that it was given to; and the
  // least of that over all such tensors.
  const policy::BlockSizes& sizes() const { return sizes_; }
  const policy::BlockSizes& latest_copied() const { return latest_copied_; }
  const policy::BlockSizes& copied() const { return copied_; }
  uint64_t marks() const { return marks_taken_; }  // iterations that the job marked
  std::optional<policy::LaunchIndex> last_mark() const { return last_mark_; }

  // The sequence that the job is on; kNoSequence, and then no iteration.
  policy::SequenceId sequence() const { return tracker_.sequence(); }
  const policy::Trace& iteration() const { return tracker_.IterationOf(sequence()); }
  uint32_t IterationLaunches() const;  // 0: it is on none
  uint64_t IterationsDone() const;     // of the sequence since it was entered

  static constexpr uint32_t kLaunchesAtATime = 4096;

 private:
  void TakeSizesAndMarks(TraceRecorder* recorder);
  bool MarkedBefore(policy::LaunchIndex index);

  policy::Trace trace_;
  policy::SequenceTracker tracker_;
  policy::LaunchIndex shown_ = 0;  // to the tracker
  policy::BlockSizes sizes_, latest_copied_, copied_;
  std::deque<policy::LaunchIndex> marks_;
  std::optional<policy::LaunchIndex> last_mark_;
  uint64_t marks_taken_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_JOB_FOLLOWER_H_
