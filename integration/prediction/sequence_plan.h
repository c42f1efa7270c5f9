// The predictor's records of the sequences that a job repeats. SequencePlan is the plan of one sequence;
// FollowedIterations keeps the iteration that the job followed for the most launches. Only the predictor's
// thread uses them. A sequence that cannot be planned has no plan; no other call fails. policy/trace finds
// the sequence that the job is on.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_SEQUENCE_PLAN_H_
#define SPILLWAY_INTEGRATION_PREDICTION_SEQUENCE_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "policy/model/plan.h"
#include "policy/model/units.h"
#include "policy/planner/runtime_planner.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/recorded_workload.h"
#include "policy/trace/trace.h"
#include "policy/trace/write_facts.h"

namespace spillway::integration {

// The facts about the job's launches: their times and their writes. Either may be null.
struct LearntFacts {
  const policy::KernelTimes* times = nullptr;
  const policy::WriteFacts* writes = nullptr;
};

// The plan for one sequence: made at once, improved in slices of work, and given out for the launch at which
// the sequence begins. Another, which leaves less memory free, takes over once the job has followed the
// sequence for long. Owns the planners and the machine that was planned for. The predictor decides when to
// plan.
class SequencePlan {
 public:
  // `sequence`: its launches, as a trace that begins with launch 0. Makes the first plan, which takes about
  // 100 ms of CPU time for 5,000 launches.
  SequencePlan(const policy::Trace& sequence, const policy::BlockSizes& sizes,
               const policy::RuntimeMachine& machine, const LearntFacts& facts);

  // The job has followed the sequence for so many iterations since it came to it.
  void RecordIterations(uint64_t iterations) { iterations_ = iterations; }
  // The best plan so far, with the sequence's first launch at launch `start`; null when there can be none.
  std::shared_ptr<const policy::MigrationPlan> From(policy::LaunchIndex start);
  // Whether Improve has found a better plan than the one that From returned last.
  bool HasBetter() const { return Best().Plan() != handed_out_; }
  // Does one slice of work on a better plan. False when there is nothing left to try.
  bool Improve();

  // Whether the memory on the GPU or the host is not what the plan was made for, or the iteration fits on the
  // GPU no more.
  bool MemoryChanged(const policy::RuntimeMachine& machine) const;
  // Returns whether it is time to ask OutOfDate, which is less and less often. Called once whenever the job
  // enters the sequence or begins it again.
  bool DueForCheck() {
    ++turns_;
    return (turns_ & (turns_ - 1)) == 0 || turns_ % kTurnsBetweenChecks == 0;
  }
  // Takes over how often `before`, which this plan replaces, was due for a check.
  void GoOnFrom(const SequencePlan& before) { turns_ = before.turns_; }
  // Whether rates, kernel times or what is known of writes have changed so much that the plan should be made
  // anew, or the iteration fits on the GPU by now. Walks the whole sequence, so it is for now and then.
  bool OutOfDate(const policy::Trace& sequence, const policy::BlockSizes& sizes,
                 const policy::RuntimeMachine& machine, const LearntFacts& facts) const;
  policy::Forecast forecast() const { return Best().forecast(); }
  // Uses of blocks in an iteration, and those of which it was known, or guessed, whether they write.
  uint64_t accesses() const { return accesses_; }
  uint64_t accesses_known() const { return accesses_known_; }

 private:
  const policy::RuntimePlanner& Best() const;
  bool MayBeSteady() const;

  const policy::RuntimeMachine machine_;
  policy::Nanos ideal_ = 0;  // sum of the launches' times, as measured when the plan was made
  uint64_t writes_version_ = 0;
  uint64_t accesses_ = 0, accesses_known_ = 0;
  policy::RecordedWorkload recorded_;  // moved to steady_ when that is made
  std::unique_ptr<policy::RuntimePlanner> planner_;
  std::unique_ptr<policy::RuntimePlanner> steady_;  // with less memory left free; made when it may be used
  uint64_t iterations_ = 0;
  std::shared_ptr<const policy::MigrationPlan> handed_out_;
  bool more_ = true, more_steady_ = true;
  static constexpr uint64_t kTurnsBetweenChecks = 32;
  uint64_t turns_ = 0;
};

// Keeps the iteration that the job followed for the most launches, with its allocations and frees, for the
// report at the end. Makes no plans. policy::SequenceTracker cannot give it: that keeps each sequence as it
// was when it was first seen, which in a job's first iterations hands out blocks that later ones do not, and
// forgets sequences that others crowd out.
class FollowedIterations {
 public:
  // Follows the trace as it grows. The job repeats an iteration of `iteration_launches` launches at its end;
  // 0: none that is known. `last_mark`: the launch that followed the last end of an iteration that the job
  // marked.
  void Record(const policy::Trace& trace, uint32_t iteration_launches,
              std::optional<policy::LaunchIndex> last_mark = std::nullopt);

  struct Iteration {
    policy::Trace trace;    // of one iteration and no more
    uint32_t launches = 0;  // in one iteration
    uint64_t followed = 0;  // launches for which an iteration of this length was followed
    std::optional<policy::LaunchIndex> first =
        std::nullopt;  // of `trace`, the launch after a mark; none: there was no mark
  };
  // The iteration that was followed for the most launches; null when nothing repeated.
  const Iteration* Most() const;

  static constexpr size_t kMaxKept = 4;  // lengths that are kept: those that were followed for longest

 private:
  Iteration* Of(uint32_t launches);
  static bool Repeats(const policy::Trace& trace, uint32_t launches);

  std::vector<Iteration> iterations_;
  uint32_t iteration_launches_ = 0;      // as Record was given it last
  policy::LaunchIndex recorded_to_ = 0;  // end of the trace then
  uint64_t copied_at_ = 0;               // `followed` of the present iteration when its trace was copied last
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_SEQUENCE_PLAN_H_
