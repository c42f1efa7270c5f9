// PredictionReports: the predictor's findings for reports and tests: counts, the iteration that was followed
// for longest, and the uses of its blocks. The predictor's thread writes them, any thread reads them: one
// lock guards the snapshots and is held for a copy alone. No call fails.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_PREDICTION_REPORTS_H_
#define SPILLWAY_INTEGRATION_PREDICTION_PREDICTION_REPORTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "integration/prediction/job_follower.h"
#include "integration/prediction/sequence_plan.h"
#include "io/os/sync.h"
#include "policy/bound/iteration_uses.h"
#include "policy/trace/recorded_workload.h"

namespace spillway::integration {

// A snapshot, for reports and tests. All counts are since the start.
struct PredictorStats {
  uint64_t plans = 0;               // put in force
  uint64_t departures = 0;          // plans dropped because a launch was not the expected one
  uint64_t lost = 0;                // times that the recorder's rings were too small
  uint32_t iteration_launches = 0;  // of the plan in force, or of what is seen to repeat now; 0: none
  uint64_t readoptions = 0;         // of plans: those of a sequence that had been left
  uint64_t improved = 0;            // of plans: better ones for the sequence that the job was on
  uint32_t sequences = 0;           // known now
  uint64_t launches = 0;            // examined
  uint64_t followed = 0;            // of launches: those that the known sequence expected
  uint64_t marks = 0;               // iterations that the job marked
  policy::Forecast forecast;        // of the plan in force, or of the last one
  uint64_t accesses = 0;            // of an iteration of the plan made last
  uint64_t accesses_known = 0;      // of these: whether they write was known, or guessed, when it was made
  uint64_t kinds_timed = 0;         // as KernelTimes counts them; 0: no launch was timed yet
};

// The iteration that the job followed for the most launches, with the measured times, and its launches.
struct KeptIteration {
  policy::RecordedWorkload recorded;
  policy::Trace launches;         // kernel k of the workload is launch begin() + k
  uint64_t followed = 0;          // launches for which it was followed
  uint64_t samples = 0;           // of all launches of the job: those that were timed
  std::optional<uint32_t> first;  // the kernel with which an iteration begins; none: the job marked none
};

class PredictionReports {
 public:
  // ---- The predictor's thread.

  // The job has come to a sequence: the uses of its blocks are kept if it is followed for longest.
  void Enter(const JobFollower& job);
  // It has gone on following it.
  void RecordFollowed(const JobFollower& job);
  // Keeps the launches of what is followed for longest, for Followed.
  void RecordIteration(const JobFollower& job) {
    iterations_.Record(job.trace(), job.IterationLaunches(), job.last_mark());
  }
  std::optional<KeptIteration> Followed(const JobFollower& job, const policy::KernelTimes& times,
                                        const policy::WriteFacts* writes, uint64_t samples) const;
  // Whether AskForIteration was called since.
  bool TakeAsked() { return asked_.exchange(false, std::memory_order_relaxed); }
  void SetLast(KeptIteration iteration);
  void Publish(const PredictorStats& stats);

  // ---- Any thread.

  PredictorStats stats() const;
  // The iteration of the sequence that was followed for the most launches; null: Enter was never called.
  std::shared_ptr<const policy::IterationUses> uses() const;
  void AskForIteration() { asked_.store(true, std::memory_order_relaxed); }
  std::shared_ptr<const KeptIteration> last() const;

 private:
  // An iteration with the number of launches for which it was followed.
  struct Observed {
    policy::SequenceId sequence = policy::kNoSequence;
    std::shared_ptr<const policy::IterationUses> uses;
    uint64_t launches = 0;
    uint64_t launches_before = 0;  // of those: before the job came back to it
  };

  std::atomic<bool> asked_{false};
  FollowedIterations iterations_;  // the predictor's thread
  mutable os::Mutex mu_{os::LockRank::kRecorder};
  PredictorStats stats_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const KeptIteration> last_ ABSL_GUARDED_BY(mu_);
  Observed now_ ABSL_GUARDED_BY(mu_);   // what the job follows, or followed last
  Observed most_ ABSL_GUARDED_BY(mu_);  // of those before: what was followed for longest
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_PREDICTION_REPORTS_H_
