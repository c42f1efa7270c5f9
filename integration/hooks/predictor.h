// Predictor: watches the launches of one device, and while they repeat what they did before, has a plan in
// force. On the launching thread it only compares signatures and records; finding periods and planning happen
// on its own thread. The first launch that departs from the repeat drops the plan at once.

#ifndef SPILLWAY_INTEGRATION_HOOKS_PREDICTOR_H_
#define SPILLWAY_INTEGRATION_HOOKS_PREDICTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/residency/launch_observer.h"
#include "allocator/residency/residency.h"
#include "integration/hooks/followed_period.h"
#include "integration/hooks/launch_timer.h"
#include "integration/hooks/trace_recorder.h"
#include "io/os/sync.h"
#include "policy/cycle.h"
#include "policy/kernel_times.h"
#include "policy/period.h"
#include "policy/plan.h"
#include "policy/planner.h"
#include "policy/recorded_workload.h"

namespace spillway::integration {

enum class Foresight : uint8_t {
  kPlan,     // a plan is put in force for what repeats
  kObserve,  // what repeats is kept for reports, no plan is made
};

struct PredictorOptions {
  int device = 0;
  Foresight foresight = Foresight::kPlan;
  uint64_t host_bytes = 0;  // room of the host tier, for the plan's choice of tiers
  policy::PeriodOptions period;
  // For timing launches on the GPU; null: nothing is timed.
  const allocator::CudaDriver* driver = nullptr;
  CUcontext context = nullptr;  // the device's
  bool keep_step = false;       // the step that is followed for longest is kept for FollowedStep
};

// Snapshot, for reports and tests.
struct PredictorStats {
  uint64_t plans = 0;       // put in force
  uint64_t departures = 0;  // plans dropped because a launch was another than expected
  uint64_t lost = 0;        // times the recorder's room was too small
  uint32_t period = 0;      // of the plan in force, or of what is observed to repeat now; 0: none
};

class Predictor : public allocator::LaunchObserver {
 public:
  explicit Predictor(const PredictorOptions& options);
  ~Predictor() override;  // after Stop, and after the last launch

  // Starts the thread; plans go to `residency`, which must live until Stop has returned. Once.
  void Start(allocator::Residency* residency);
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

  PredictorStats stats() const;

  // The cycle that the job followed for the most launches, with Foresight::kObserve; null when nothing repeated. Any
  // thread.
  std::shared_ptr<const policy::Cycle> observed() const;

  // With keep_step: the step that the job followed for the most launches, with the times that were measured, and the
  // launches themselves. Nothing when nothing repeated. After Stop.
  struct Followed {
    policy::RecordedWorkload recorded;
    policy::Trace launches;  // kernel k of the workload is launch begin() + k
    uint64_t followed = 0;   // launches for which it was followed
    uint64_t samples = 0;    // launches that were timed, of all
  };
  std::optional<Followed> FollowedStep() const;

  // The body of the thread once through: takes what was recorded, finds a period, plans. True when there was
  // something. For the thread, and for tests that start none but call UsePlansOf.
  bool Step();
  void UsePlansOf(allocator::Residency* residency) { residency_.store(residency); }

 private:
  // What launching threads compare with; one expectation per plan.
  struct Expectation {
    policy::LaunchIndex start = 0;
    std::vector<uint64_t> signatures;
    bool Matches(policy::LaunchIndex index, uint64_t signature) const {
      return index < start || signatures[(index - start) % signatures.size()] == signature;
    }
  };

  // A cycle with the launches for which it was followed.
  struct Observed {
    std::shared_ptr<const policy::Cycle> cycle;
    uint64_t launches = 0;
  };

  void Compare(policy::LaunchIndex index, uint64_t signature);
  void Depart(const Expectation* expected, policy::LaunchIndex index);
  void NoteSizes();
  bool Feed(policy::LaunchIndex from);
  bool FollowsPlan(policy::LaunchIndex index);
  void PlanUpTo(policy::LaunchIndex end, uint32_t period);
  void MakePlanUpTo(policy::LaunchIndex end, uint32_t period);
  void ObserveUpTo(policy::LaunchIndex end, uint32_t period);
  void NoteFollowed();
  void PlanAgainIfRoomChanged();
  uint64_t Room() const;
  void Trim();
  void FreeRetired();
  void Loop();

  const PredictorOptions options_;
  TraceRecorder recorder_;
  std::unique_ptr<LaunchTimer> timer_;  // constant after construction; may be null
  std::atomic<allocator::Residency*> residency_{nullptr};

  // Null: no plan in force. Stored by the thread, taken away by whoever departs; readers_ keeps it from being
  // freed.
  std::atomic<const Expectation*> expected_{nullptr};
  std::atomic<int> readers_{0};  // launching threads that look at an expectation
  std::atomic<policy::LaunchIndex> departed_at_{policy::kNever};  // for the thread; it puts kNever back
  std::atomic<uint64_t> plans_{0}, departures_{0}, lost_{0};
  std::atomic<uint32_t> period_{0};

  // ---- The thread's own (or the test's that calls Step).
  policy::Trace trace_;
  policy::PeriodFinder finder_;
  policy::BlockSizes sizes_;
  policy::KernelTimes times_;
  FollowedPeriod followed_;
  bool planned_ = false;                // a plan was put in force and its departure not yet digested
  policy::LaunchIndex planned_at_ = 0;  // end of the period that the plan in force was found by
  uint32_t planned_period_ = 0;
  uint64_t planned_room_ = 0;  // bytes for resident blocks that the plan in force reckons with
  std::vector<std::unique_ptr<const Expectation>> expectations_;  // in force, and retired but maybe looked at

  mutable os::Mutex mu_{os::LockRank::kRecorder};
  os::CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  Observed now_ ABSL_GUARDED_BY(mu_);   // the one that was found last
  Observed most_ ABSL_GUARDED_BY(mu_);  // of those before, the one that was followed for longest
  std::thread thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_PREDICTOR_H_
