// JobPause: pauses and resumes the job on all its devices. The job does so itself (spillway.pause(), through
// the C ABI), for a region's tag or for everything; or somebody does from outside, for everything: by the
// job's socket (`spillway pause PID`) or by SIGUSR2 (SPILLWAY_PAUSE=signal). The job's calls are carried out
// on their thread; those from outside on a thread that is started for the first of them (`spill-pause`), so
// that who asks is answered at once.
//
// It is the gate of launches under a pause from outside: they wait here, with Python's lock let go of. A job
// that is resumed goes on as if nothing had been. A pause that fails on one device is taken back on the
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
#include "integration/report/figures.h"
#include "integration/report/run_data.h"
#include "io/os/joinable_thread.h"
#include "io/os/sync.h"
#include "io/os/wait.h"

namespace spillway::integration {

class JobPause final : public allocator::PauseGate {
 public:
  // Both must outlive it.
  JobPause(const Devices* devices, os::WaitList* waits);
  ~JobPause() override;
  JobPause(const JobPause&) = delete;
  JobPause& operator=(const JobPause&) = delete;

  // ---- By the job. Any thread; these wait.

  // The number of the region's tag, from 1 on; the same one for the same tag.
  uint32_t TagOf(const std::string& tag);
  // As Residency::Pause and Resume on all devices in service; of the blocks of that region, or of all with an
  // empty tag. kInvalidArgument for a tag that no region has had.
  absl::Status Pause(const std::string& tag, allocator::PauseStats* stats);
  absl::Status Resume(const std::string& tag, bool wait);

  // ---- From outside. Any thread; these do not wait.

  // The job is to be paused, or to go on. An error when no thread can be had for it.
  absl::Status Ask(bool pause);
  // The other of the two.
  absl::Status Toggle();
  // One JSON object: "state" (running, pausing, paused, resuming), "error" where the last pause came to
  // nothing, and what the last pause came to.
  std::string StateJson() const;

  absl::Status AwaitResume(absl::FunctionRef<std::string()> name, const os::Atomic<bool>& stopped) override;

  // ---- For want of launches (DeviceShare). Any thread, also with the lock of a share.

  // The device's blocks have been away since `began` (ns of the system's steady clock), and are wanted again.
  void NoteIdle(int device, int64_t began, const allocator::PauseStats& stats);
  void NoteIdleEnd(int device);

  // ---- Reports, and the end.

  PauseFigures figures() const;
  // The last kMostIntervals pauses that were carried out, in the order of their ends of leaving.
  static constexpr size_t kMostIntervals = 1000;
  std::vector<ReportedPause> Intervals() const;

  // At the end of the process: no launch waits any more. The thread ends within 0.1 s, or is left to itself.
  void Stop();
  // In a forked child, on its only thread.
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
  // A pause was carried out, which began at that time. The second ends all that are meant, and not ended.
  void AddInterval(int64_t began, allocator::PausedBy by, const std::string& tag,
                   const allocator::PauseStats& stats, int device = -1);
  void EndIntervals(allocator::PausedBy by, const std::string& tag, int device = -1);

  const Devices* const devices_;
  os::WaitList* const waits_;
  const int resumed_;  // eventfd: readable while launches need not wait; -1: none could be had

  mutable os::Mutex mu_{os::LockRank::kRegistry};
  os::CondVar changed_;
  std::map<std::string, uint32_t> tags_ ABSL_GUARDED_BY(mu_);
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;  // paused, from outside
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool launches_wait_ ABSL_GUARDED_BY(mu_) = false;
  State state_ ABSL_GUARDED_BY(mu_) = State::kRunning;
  std::string error_ ABSL_GUARDED_BY(mu_);
  allocator::PauseStats last_ ABSL_GUARDED_BY(mu_);
  PauseFigures figures_ ABSL_GUARDED_BY(mu_);
  int64_t paused_since_ ABSL_GUARDED_BY(mu_) = 0;  // from outside; ns of the system's steady clock
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  os::JoinableThread thread_;

  mutable os::Mutex intervals_mu_{os::LockRank::kRecorder};  // taken with that of a share held
  std::deque<ReportedPause> intervals_ ABSL_GUARDED_BY(intervals_mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_JOB_PAUSE_H_
