// JobPause pauses and resumes the job on all its devices. The job asks for it itself (spillway.pause(),
// through the C ABI), for a region's tag or for everything. Others ask from outside, for everything: by the
// job's socket (`spillway pause PID`) or by SIGUSR2 (SPILLWAY_PAUSE=signal). The job's calls are carried out
// on their thread. Requests from outside are carried out on a thread that is started for the first of them
// (`spill-pause`), so that they are answered at once.
//
// It is also the gate of launches under a pause from outside: they wait here, with Python's lock released. A
// job that is resumed goes on as if nothing had been. A pause that fails on one device is taken back on the
// others.

#ifndef SPILLWAY_INTEGRATION_ENGINE_JOB_PAUSE_H_
#define SPILLWAY_INTEGRATION_ENGINE_JOB_PAUSE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/residency/state/pause.h"
#include "integration/engine/devices.h"
#include "integration/report/metrics.h"
#include "integration/report/run_data.h"
#include "io/os/joinable_thread.h"
#include "io/os/sync.h"
#include "io/os/wait.h"

namespace spillway::integration {

class JobPause final : public allocator::PauseGate {
 public:
  // Both must outlive this object.
  JobPause(const Devices* devices, os::WaitList* waits);
  ~JobPause() override;
  JobPause(const JobPause&) = delete;
  JobPause& operator=(const JobPause&) = delete;

  // ---- For the job. Thread-safe; these wait.

  // Returns the number of the region's tag, from 1 on; the same one for the same tag.
  uint32_t TagOf(const std::string& tag);
  // Like Residency::Pause and Resume, on all devices in service: for the blocks of that region, or for all if
  // the tag is empty. kInvalidArgument for a tag that no region has had.
  absl::Status Pause(const std::string& tag, allocator::PauseStats* stats);
  absl::Status Resume(const std::string& tag, bool wait);

  // ---- For requests from outside. Thread-safe; these do not wait.

  // Asks for the job to be paused, or to go on. Returns an error if no thread can be started for it.
  absl::Status Ask(bool pause);
  // Asks for the opposite of the last request.
  absl::Status Toggle();
  // Returns one JSON object: "state" (running, pausing, paused, resuming), "error" if the last pause failed,
  // and the metrics of the last pause.
  std::string StateJson() const;

  absl::Status AwaitResume(absl::FunctionRef<std::string()> name, const os::Atomic<bool>& stopped) override;

  // ---- For want of launches (DeviceShare). Thread-safe; the lock of a share may be held.

  // Records that the device's blocks have been away since `began` (ns of the system's steady clock), and that
  // they are wanted again.
  void RecordIdle(int device, int64_t began, const allocator::PauseStats& stats);
  void RecordIdleEnd(int device);

  // ---- Reports, and the end.

  PauseMetrics metrics() const;
  // Returns the last kMaxIntervals pauses that were carried out, ordered by the time when everything had
  // left.
  static constexpr size_t kMaxIntervals = 1000;
  std::vector<ReportedPause> Intervals() const;

  // Called at the end of the process: no launch waits any more. The thread ends within 0.1 s, or is left to
  // itself.
  void Stop();
  // Called in a forked child, on its only thread.
  void AbandonAfterFork();

 private:
  enum class State { kRunning, kPausing, kPaused, kResuming };

  absl::StatusOr<allocator::PauseScope> ScopeOf(const std::string& tag) const;
  absl::Status PauseDevices(const allocator::PauseScope& scope, allocator::PauseStats* stats);
  absl::Status ResumeDevices(const allocator::PauseScope& scope, bool wait);
  void Loop();
  void PauseFromOutside();
  void ResumeFromOutside();
  void LetLaunchesGo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // AddInterval records a pause that was carried out and began at that time. EndIntervals ends all that are
  // meant and have not ended.
  void AddInterval(int64_t began, allocator::PausedBy by, const std::string& tag,
                   const allocator::PauseStats& stats, int device = -1);
  void EndIntervals(allocator::PausedBy by, const std::string& tag, int device = -1);

  const Devices* const devices_;
  os::WaitList* const waits_;
  const int resumed_;  // eventfd: readable while launches need not wait; -1: none could be created

  mutable os::Mutex mu_{os::LockRank::kRegistry};
  os::CondVar changed_;
  std::map<std::string, uint32_t> tags_ ABSL_GUARDED_BY(mu_);
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;  // a pause from outside is wanted
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool launches_wait_ ABSL_GUARDED_BY(mu_) = false;
  State state_ ABSL_GUARDED_BY(mu_) = State::kRunning;
  std::string error_ ABSL_GUARDED_BY(mu_);
  allocator::PauseStats last_ ABSL_GUARDED_BY(mu_);
  PauseMetrics metrics_ ABSL_GUARDED_BY(mu_);
  int64_t paused_since_ ABSL_GUARDED_BY(mu_) = 0;  // from outside; ns of the system's steady clock
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  os::JoinableThread thread_;

  mutable os::Mutex intervals_mu_{os::LockRank::kRecorder};  // taken while that of a share is held
  std::deque<ReportedPause> intervals_ ABSL_GUARDED_BY(intervals_mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_JOB_PAUSE_H_
