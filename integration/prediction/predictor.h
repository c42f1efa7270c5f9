// Predictor: watches the launches of one device, and while they go along a sequence that is known, has a plan
// in force. The engine makes one per device; the residency calls it as its LaunchObserver. On the launching
// thread it only compares signatures and records; finding sequences and planning happen on its own thread.
// The first launch that departs from the sequence drops the plan at once; the plan is back as soon as the job
// is recognised to be on a known one, in the middle of an iteration, too. Only Start can fail.

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
#include "integration/prediction/sequences.h"
#include "integration/prediction/trace_recorder.h"
#include "io/os/sync.h"
#include "policy/bound/iteration_uses.h"
#include "policy/planner/plan.h"
#include "policy/planner/recorded_workload.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/sequence_tracker.h"

namespace spillway::integration {

enum class Foresight : uint8_t {
  kPlan,     // a plan is put in force for the path that the job is on
  kReckon,   // plans are made, so that reports can say what is possible, and none is put in force
  kObserve,  // what repeats is kept for reports, no plan is made
};

struct PredictorOptions {
  int device = 0;
  Foresight foresight = Foresight::kPlan;
  uint64_t host_bytes = 0;  // room of the host tier, for the plan's choice of tiers
  bool has_disk = true;
  policy::PeriodOptions period;
  // For timing launches on the GPU; null: nothing is timed.
  const allocator::CudaDriver* driver = nullptr;
  CUcontext context = nullptr;  // the device's
  bool keep_step = false;       // the step that is followed for longest is kept for FollowedStep
  // What was learnt of writes by now; null, or a function that returns null, when nothing is. Called on the
  // thread.
  std::function<std::shared_ptr<const policy::WriteFacts>()> write_facts;
};

// Snapshot, for reports and tests.
struct PredictorStats {
  uint64_t plans = 0;         // put in force
  uint64_t departures = 0;    // plans dropped because a launch was another than expected
  uint64_t lost = 0;          // times the recorder's room was too small
  uint32_t period = 0;        // of the plan in force, or of what is observed to repeat now; 0: none
  uint64_t readoptions = 0;   // of plans: those of a path that had been left
  uint64_t improved = 0;      // of plans: better ones for the path that the job was on
  uint32_t paths = 0;         // known now
  uint64_t launches = 0;      // looked at
  uint64_t followed = 0;      // of those, by the path that the job was on
  uint64_t marks = 0;         // steps that the job marked
  policy::Forecast forecast;  // of the plan in force, or of the last one
  uint64_t kinds_timed = 0;   // kinds of launches whose time on the GPU was measured
};

class Predictor : public allocator::LaunchObserver {
 public:
  explicit Predictor(const PredictorOptions& options);
  ~Predictor() override;  // after Stop, and after the last launch

  // Starts the thread, or says that the system has none. Plans go to `residency`, which must live until Stop
  // has returned. Once.
  absl::Status Start(allocator::Residency* residency);
  // Joins the thread: it is in no wait longer than a plan's making. Launches may go on; no plan follows. Any
  // number of times.
  void Stop();

  void OnLaunch(int device, policy::LaunchIndex index, uint64_t tag,
                const allocator::AccessSet& set) override;
  void OnAllocate(int device, allocator::BlockId block, uint64_t bytes) override;
  void OnFree(int device, allocator::BlockId block) override;
  void OnEnter(const allocator::StreamRef& stream) override;
  void OnReady(const allocator::StreamRef& stream) override;
  void OnInterrupt() override;
  // The job says that a step ends here. Any thread.
  void MarkStep() { recorder_.AddMark(); }

  PredictorStats stats() const;

  // The cycle that the job followed for the most launches, with Foresight::kObserve; null when nothing
  // repeated. Any thread.
  std::shared_ptr<const policy::Cycle> observed() const;

  // With keep_step: the step that the job followed for the most launches, with the times that were measured,
  // and the launches themselves. Nothing when nothing repeated. After Stop.
  struct Followed {
    policy::RecordedWorkload recorded;
    policy::Trace launches;  // kernel k of the workload is launch begin() + k
    uint64_t followed = 0;   // launches for which it was followed
    uint64_t samples = 0;    // launches that were timed, of all
  };
  std::optional<Followed> FollowedStep() const;

  // The body of the thread once through: takes what was recorded, follows it, plans. True when there was
  // something. For the thread, and for tests that start none but call UsePlansOf.
  bool Step();
  // A slice of work on a better plan for the path that the job is on. False when there is nothing to try. As
  // Step.
  bool Improve();
  void UsePlansOf(allocator::Residency* residency) { residency_.store(residency); }

 private:
  // What launching threads compare with; one expectation per plan put in force.
  struct Expectation {
    policy::LaunchIndex start = 0;
    std::vector<uint64_t> signatures;
    bool Matches(policy::LaunchIndex index, uint64_t signature) const {
      return index < start || signatures[(index - start) % signatures.size()] == signature;
    }
  };

  // A cycle with the launches for which it was followed.
  struct Observed {
    policy::PathId path = policy::kNoPath;
    std::shared_ptr<const policy::Cycle> cycle;
    uint64_t launches = 0;
    uint64_t launches_before = 0;  // of those, the times before
  };

  void Compare(policy::LaunchIndex index, uint64_t signature);
  void Depart(const Expectation* expected);
  void NoteSizes();
  void StartOver();
  bool Feed(policy::LaunchIndex from);
  bool MarkedBefore(policy::LaunchIndex index);
  void PutInForce();
  void SetPlanOfPath();
  void Observe();
  void NoteFollowed();
  void KeepUpToDate();
  void Replace(bool better);
  policy::RuntimeMachine MachineNow() const;
  LearntFacts Facts();
  uint64_t LapNow() const;
  uint32_t PeriodNow() const;
  void Trim();
  void FreeRetired();
  void Publish();
  void Loop();

  const PredictorOptions options_;
  TraceRecorder recorder_;
  std::unique_ptr<LaunchTimer> timer_;  // constant after construction; may be null
  std::atomic<allocator::Residency*> residency_{nullptr};

  // Null: no plan in force. Stored by the thread, taken away by whoever departs; readers_ keeps it from being
  // freed.
  std::atomic<const Expectation*> expected_{nullptr};
  std::atomic<int> readers_{0};  // launching threads that look at an expectation
  std::atomic<uint64_t> departures_{0};
  std::atomic<uint32_t> period_{0};

  // ---- The thread's own (or the test's that calls Step).
  policy::Trace trace_;
  policy::PathTracker tracker_;
  policy::BlockSizes sizes_;
  std::deque<policy::LaunchIndex> marks_;
  std::map<policy::PathId, std::unique_ptr<PathPlan>> path_plans_;
  uint64_t settled_version_ = 0;           // of the tracker, when the plan was last seen to
  const Expectation* in_force_ = nullptr;  // stored last, maybe departed from
  bool entered_ = false;                   // the path, and its plan has not been looked over since
  uint64_t lap_ = 0;                       // of the path, when its plan was last looked over
  std::vector<std::unique_ptr<const Expectation>> expectations_;  // in force, and retired but maybe looked at
  policy::KernelTimes times_;
  FollowedPeriod followed_;
  std::shared_ptr<const policy::WriteFacts> writes_;
  PredictorStats counts_;  // what Publish makes visible

  mutable os::Mutex mu_{os::LockRank::kRecorder};
  os::CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  PredictorStats published_ ABSL_GUARDED_BY(mu_);
  Observed now_ ABSL_GUARDED_BY(mu_);   // the one that the job is on, or was on last
  Observed most_ ABSL_GUARDED_BY(mu_);  // of those before, the one that was followed for longest
  std::thread thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_PREDICTOR_H_
