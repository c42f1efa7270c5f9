// Predictor: watches the launches of one device and keeps a plan in force while they follow a known sequence.
// The engine makes one per device; the residency calls it as its LaunchObserver. On launching threads it only
// compares signatures and records. Its own thread (`spillway-plan`) finds sequences and plans. The first
// launch that departs from the sequence drops the plan at once; what of it is still of use stays as hints.
// The plan is put in force again where the job is seen to be on a known sequence, in the middle of an
// iteration, too. Only Start can fail.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_PREDICTOR_H_
#define SPILLWAY_INTEGRATION_PREDICTION_PREDICTOR_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/residency/residency.h"
#include "allocator/residency/state/residency_options.h"
#include "integration/prediction/launch_timer.h"
#include "integration/prediction/planning_machine.h"
#include "integration/prediction/sequence_plan.h"
#include "integration/prediction/trace_recorder.h"
#include "io/os/sync.h"
#include "policy/bound/iteration_uses.h"
#include "policy/model/plan.h"
#include "policy/planner/plan_hints.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/recorded_workload.h"
#include "policy/trace/sequence_tracker.h"

namespace spillway::integration {

enum class PredictorMode : uint8_t {
  kPlan,      // a plan is put in force for the sequence that the job is on
  kForecast,  // plans are made for reports, and none is put in force
  kObserve,   // no plan is made; the sequences are kept for reports
};

struct PredictorOptions {
  int device = 0;
  PredictorMode mode = PredictorMode::kPlan;
  // What the host tier may hold now, for the plan's choice of tiers: other processes of the node may take a
  // part of it, or leave. Called on the predictor's thread. Empty: no host tier.
  std::function<uint64_t()> host_bytes;
  bool has_disk = true;
  policy::IterationOptions iterations;  // how recurring iterations are found
  // For timing launches on the GPU; null: nothing is timed.
  const allocator::CudaDriver* driver = nullptr;
  CUcontext context = nullptr;  // the device's
  bool keep_iteration = false;  // the iteration that is followed for longest is kept for FollowedIteration
  // Gives what was learnt of writes by now, or null when nothing was. May be empty. Called on the predictor's
  // thread.
  std::function<std::shared_ptr<const policy::WriteFacts>()> write_facts;
  KnownRates known_rates;  // of an earlier run
};

// A snapshot, for reports and tests. All counts are since the start.
struct PredictorStats {
  uint64_t plans = 0;               // put in force
  uint64_t departures = 0;          // plans dropped because a launch was not the expected one
  uint64_t lost = 0;                // times that the recorder's rings were too small
  uint32_t iteration_launches = 0;  // of the plan in force, or of what is seen to repeat now; 0: none
  uint64_t readoptions = 0;         // of plans: those of a sequence that had been left
  uint64_t improved = 0;            // of plans: better ones for the sequence that the job was on
  uint32_t sequences = 0;           // known now
  uint64_t launches = 0;            // looked at
  uint64_t followed = 0;            // of launches: those that the known sequence expected
  uint64_t marks = 0;               // iterations that the job marked
  policy::Forecast forecast;        // of the plan in force, or of the last one
  uint64_t accesses = 0;            // of an iteration of the plan made last
  uint64_t accesses_known = 0;      // of these: whether they write was known, or guessed, when it was made
  uint64_t kinds_timed = 0;         // as KernelTimes counts them; 0: no launch was timed yet
};

class Predictor : public allocator::LaunchObserver {
 public:
  explicit Predictor(const PredictorOptions& options);
  ~Predictor() override;  // after the last launch; stops the thread

  // Starts the thread; an error when the system has none to give. Plans go to `residency`, which must live
  // until Stop has returned. To be called once.
  absl::Status Start(allocator::Residency* residency);
  // Joins the thread, which takes at most as long as the making of one plan. Launches may go on; no plan
  // follows. May be called again.
  void Stop();

  // LaunchObserver's, on launching threads: none of them waits or allocates.
  void OnLaunch(int device, policy::LaunchIndex index, uint64_t tag,
                const allocator::AccessSet& set) override;
  void OnAllocate(int device, allocator::BlockId block, uint64_t bytes, uint64_t copied_bytes) override;
  void OnFree(int device, allocator::BlockId block) override;
  void OnEnter(const allocator::StreamRef& stream) override;
  void OnReady(const allocator::StreamRef& stream) override;
  void OnInterrupt() override;
  // The job marks the end of an iteration. Any thread.
  void MarkIteration() { recorder_.AddMark(); }
  // The tag of a launch that was reported not too long ago. Any thread.
  std::optional<uint64_t> TagOf(policy::LaunchIndex index) const { return recorder_.TagOf(index); }

  // Any thread.
  PredictorStats stats() const;

  // With PredictorMode::kObserve: the iteration that the job followed for the most launches; null when
  // nothing repeated. Any thread.
  std::shared_ptr<const policy::IterationUses> observed() const;

  // With keep_iteration: the iteration that the job followed for the most launches, with the measured times,
  // and its launches. Nothing when nothing repeated. After Stop.
  struct Followed {
    policy::RecordedWorkload recorded;
    policy::Trace launches;         // kernel k of the workload is launch begin() + k
    uint64_t followed = 0;          // launches for which it was followed
    uint64_t samples = 0;           // of all launches of the job: those that were timed
    std::optional<uint32_t> first;  // the kernel with which an iteration begins; none: the job marked none
  };
  std::optional<Followed> FollowedIteration() const;
  // The same while launches go on: has it made on the thread, soon, and gives the last that was; null: none
  // was. Any thread.
  void AskForIteration() { iteration_asked_.store(true, std::memory_order_relaxed); }
  std::shared_ptr<const Followed> LastIteration() const;

  // Does what the thread does in one turn: takes what was recorded, follows it, plans. True when there was
  // something to take. Called by the thread, or by tests that start no thread and call UsePlansOf.
  bool Poll();
  // Does one slice of work on a better plan for the sequence that the job is on. False when there is nothing
  // to try. Called as Poll is.
  bool Improve();
  void UsePlansOf(allocator::Residency* residency) { residency_.store(residency); }

 private:
  // The signatures that launching threads compare with; one expectation per plan put in force.
  struct Expectation {
    std::shared_ptr<const policy::MigrationPlan> hints;  // after a departure; null: there is no plan
    policy::LaunchIndex start = 0;
    std::vector<uint64_t> signatures;
    bool Matches(policy::LaunchIndex index, uint64_t signature) const {
      return index < start || signatures[(index - start) % signatures.size()] == signature;
    }
  };

  // An iteration with the number of launches for which it was followed.
  struct Observed {
    policy::SequenceId sequence = policy::kNoSequence;
    std::shared_ptr<const policy::IterationUses> iteration;
    uint64_t launches = 0;
    uint64_t launches_before = 0;  // of those: before the job came back to it
  };

  void Compare(policy::LaunchIndex index, uint64_t signature);
  void Depart(const Expectation* expected);
  void NoteSizes();
  void KeepIteration();
  void StartOver();
  bool Feed(policy::LaunchIndex from);
  bool MarkedBefore(policy::LaunchIndex index);
  void PutInForce();
  void SetHints();
  void SetPlanOfSequence();
  void NoteForecast(const SequencePlan& plan);
  void Observe();
  void NoteFollowed();
  void KeepUpToDate();
  void Replace(bool better);
  policy::RuntimeMachine MachineNow();
  LearntFacts Facts();
  uint64_t IterationNow() const;
  uint32_t IterationLaunches() const;
  void Trim();
  void FreeRetired();
  void Publish();
  void Loop();

  const PredictorOptions options_;
  TraceRecorder recorder_;
  PlanningMachine machine_;             // the predictor's thread
  std::unique_ptr<LaunchTimer> timer_;  // constant after construction; may be null
  std::atomic<allocator::Residency*> residency_{nullptr};

  // Null: no plan in force. Stored by the thread; a launching thread that departs puts null. While readers_
  // is not 0 nothing retired is freed.
  std::atomic<const Expectation*> expected_{nullptr};
  std::atomic<int> readers_{0};  // launching threads that look at an expectation
  std::atomic<uint64_t> departures_{0};
  std::atomic<uint32_t> iteration_launches_{0};
  std::atomic<bool> iteration_asked_{false};  // taken by the thread

  // ---- The thread's own (or the test's that calls Poll).
  policy::Trace trace_;
  policy::SequenceTracker tracker_;
  policy::BlockSizes sizes_;
  policy::BlockSizes
      copied_;  // the least that a move of the block has copied, of all tensors that it was given to
  std::deque<policy::LaunchIndex> marks_;
  std::optional<policy::LaunchIndex> last_mark_;
  std::map<policy::SequenceId, std::unique_ptr<SequencePlan>> sequence_plans_;
  uint64_t settled_version_ = 0;            // of the tracker, when a plan was last put in force
  const Expectation* in_force_ = nullptr;   // the one stored last; the job may have departed from it
  std::optional<policy::PlanHints> hints_;  // of the plan in force, or of the one that the job departed from
  bool hints_moved_ = false;                // other hints are to be put in force
  bool entered_ = false;                    // the sequence, and its plan has not been checked since
  uint64_t iteration_ = 0;                  // of the sequence, when its plan was last checked
  std::vector<std::unique_ptr<const Expectation>>
      expectations_;  // in force, and retired ones that may be read
  policy::KernelTimes times_;
  FollowedIterations followed_;
  std::shared_ptr<const policy::WriteFacts> writes_;
  PredictorStats counts_;  // what Publish makes visible

  mutable os::Mutex mu_{os::LockRank::kRecorder};
  os::CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  PredictorStats published_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const Followed> last_iteration_ ABSL_GUARDED_BY(mu_);
  Observed now_ ABSL_GUARDED_BY(mu_);   // what the job follows, or followed last
  Observed most_ ABSL_GUARDED_BY(mu_);  // of those before: what was followed for longest
  std::thread thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_PREDICTOR_H_
