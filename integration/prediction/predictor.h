// Predictor watches the launches of one device and keeps a plan in force while they follow a known sequence.
// The engine makes one per device; the residency calls it as its LaunchObserver. It has four parts: the
// expected launches (Departures), the job's launches (JobFollower), its plans (PlanKeeper) and its reports
// (PredictionReports). Launching threads only compare signatures and record; the predictor's own thread
// (`spillway-plan`) does all else. The first launch that departs from the sequence drops the plan at once;
// the part of it that is still of use stays as hints. A plan is put in force again when the job is found to
// be on a known sequence, in the middle of an iteration, too. Only Start can fail.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_PREDICTOR_H_
#define SPILLWAY_INTEGRATION_PREDICTION_PREDICTOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "allocator/residency/residency.h"
#include "allocator/residency/state/residency_options.h"
#include "integration/prediction/departures.h"
#include "integration/prediction/job_follower.h"
#include "integration/prediction/launch_timer.h"
#include "integration/prediction/plan_keeper.h"
#include "integration/prediction/prediction_reports.h"
#include "integration/prediction/trace_recorder.h"
#include "io/os/sync.h"
#include "policy/bound/iteration_uses.h"
#include "policy/trace/kernel_times.h"

namespace spillway::integration {

enum class PredictorMode : uint8_t {
  kPlan,      // a plan is put in force for the sequence that the job is on
  kForecast,  // plans are made for reports, and none is put in force
  kObserve,   // no plan is made; the sequences are kept for reports
};

struct PredictorOptions {
  int device = 0;
  PredictorMode mode = PredictorMode::kPlan;
  // Returns the bytes that the host tier may hold now, for the plan's choice of tiers: other processes of the
  // node may take a part of it, or leave. Called on the predictor's thread. Empty: there is no host tier.
  std::function<uint64_t()> host_bytes;
  bool has_disk = true;
  policy::IterationOptions iterations;  // how recurring iterations are found
  // For timing launches on the GPU; null: nothing is timed.
  const allocator::CudaDriver* driver = nullptr;
  CUcontext context = nullptr;  // the device's
  bool keep_iteration = false;  // the iteration that is followed for longest is kept for FollowedIteration
  // Gives what was learned of writes by now, or null when nothing was. May be empty. Called on the predictor's
  // thread.
  std::function<std::shared_ptr<const policy::WriteFacts>()> write_facts;
  KnownRates known_rates;  // of an earlier run
};

class Predictor : public allocator::LaunchObserver {
 public:
  explicit Predictor(const PredictorOptions& options);
  ~Predictor() override;  // after the last launch; stops the thread

  // Starts the thread. Returns an error when the system has none to give. Plans go to `residency`, which must
  // live until Stop has returned. Called once.
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
  std::shared_ptr<const policy::IterationUses> observed() const { return reports_.uses(); }

  // Returns the iteration that the job followed for the most launches, with the measured times, and its
  // launches, if keep_iteration is set. None when no iteration repeated. Called after Stop.
  using Followed = KeptIteration;
  std::optional<Followed> FollowedIteration() const;
  // The same while launches go on: has it made on the thread, soon, and gives the last that was; null: none
  // was. Any thread.
  void AskForIteration() { reports_.AskForIteration(); }
  std::shared_ptr<const Followed> LastIteration() const { return reports_.last(); }

  // Does what the thread does in one turn: takes what was recorded, follows it, plans. True when there was
  // something to take. Called by the thread, or by tests that start no thread and call UsePlansOf.
  bool Poll();
  // Does one slice of work on a better plan for the sequence that the job is on. False when there is nothing
  // to try. Called as Poll is.
  bool Improve();
  void UsePlansOf(allocator::Residency* residency) { residency_.store(residency); }

 private:
  // Puts the plan in force, null for none; nothing without a residency.
  void SetPlan(const Departures::Plan& plan);
  void PutInForce();
  Departures::Plan PlanAndHints();
  void Replace(PlanKeeper::Change change);
  void SetMovedHints();
  void Publish();
  void Loop();

  const PredictorOptions options_;
  TraceRecorder recorder_;              // filled by launching threads
  std::unique_ptr<LaunchTimer> timer_;  // constant after construction; may be null
  std::atomic<allocator::Residency*> residency_{nullptr};
  Departures departures_;
  PredictionReports reports_;

  // ---- The thread's own (or the test's that calls Poll).
  policy::KernelTimes times_;
  JobFollower job_;
  PlanKeeper plans_;
  uint64_t settled_version_ = 0;  // of the tracker, when a plan was last put in force
  PredictorStats counts_;         // what Publish makes visible

  os::Mutex mu_{os::LockRank::kRecorder};
  os::CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_PREDICTOR_H_
