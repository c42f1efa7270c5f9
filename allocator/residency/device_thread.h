// DeviceThread: the one thread of a device that unmaps, copies out, prefetches and completes. It owns the evictor and
// the faulter's background half, decides how much must leave the GPU and which blocks go, and sleeps when there is
// nothing to do.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_THREAD_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_THREAD_H_

#include <functional>
#include <memory>
#include <vector>

#include "allocator/residency/claim_queue.h"
#include "allocator/residency/core.h"
#include "allocator/residency/evictor.h"
#include "allocator/residency/faulter.h"
#include "allocator/residency/plan_runner.h"
#include "io/os/joinable_thread.h"

namespace spillway::allocator {

class DeviceThread {
 public:
  DeviceThread(Core* core, CopyStreams* copies);
  ~DeviceThread();

  absl::Status Start();
  // Ends the thread; transfers under way are left to the process's end. False when it could not be ended in half a second
  // (a call of the driver that does not return): it is left behind, and all that it uses must stay. Any other thread.
  bool Stop();
  // In a forked child: the thread is not there, and nothing is waited for.
  void Abandon() { thread_.Abandon(); }
  // Makes the thread look again. Any thread, also I/O completion threads; may be called with the table's lock held.
  void Wake();

  // Takes the chunks of these cached blocks off in the background (EmptyCache, room for others).
  void RequestStripsLocked(const std::vector<Block*>& blocks) {
    evictor_.StartLocked(blocks);
    Wake();
  }

  Faulter* faulter() { return &faulter_; }
  Evictor* evictor() { return &evictor_; }
  ClaimQueue* claims() { return &claims_; }
  PlanRunner* plan_runner() { return &plan_runner_; }

 private:
  void Loop();
  bool Step();
  bool EndWaits();
  bool StartEvictions();
  // Chunks that must become free: by giving up cached blocks only, and by any means.
  struct Missing {
    uint64_t cached_only = 0;
    uint64_t any = 0;
  };
  bool PlanGivesRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  Missing MissingChunksLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void SelectLocked(policy::VictimIndex* index, uint64_t chunks,
                    absl::FunctionRef<uint64_t(const Block&)> idle_since,
                    absl::FunctionRef<bool(const Block&)> may_leave, std::vector<Block*>* victims)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  uint64_t ChooseStripsLocked(uint64_t chunks, bool demand, std::vector<Block*>* victims)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  void ChooseVictimsLocked(uint64_t chunks, bool demand, std::vector<Block*>* victims)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool IsIdle(const Block& block) const;
  void RefuseIfStuckLocked(bool cancelled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  bool ReleaseExcess();
  bool FinishFrees();
  void Sleep(bool progress);

  Core* const core_;
  Faulter faulter_;
  Evictor evictor_;
  ClaimQueue claims_;
  PlanRunner plan_runner_;
  os::JoinableThread thread_;
  bool left_behind_ = false;
  bool waits_for_time_ = false;  // device's thread: chunks are missing, or the budget has fallen
  bool frees_wait_ = false;      // device's thread: freed blocks wait for recorded streams
  int64_t last_progress_ = 0;    // device's thread: when a transfer last moved on, or a launch completed

  // ---- Device's thread: since when this head has had no hope, and what had been done by then.
  int64_t stuck_since_ = 0;
  const void* stuck_head_ = nullptr;
  uint64_t room_made_ = 0;
  const void* plan_head_ = nullptr;  // that waits for the plan
  int64_t plan_wait_since_ = 0;      // since when

  os::Mutex wake_mu_{os::LockRank::kStreams};
  os::CondVar wake_;
  bool woken_ ABSL_GUARDED_BY(wake_mu_) = false;
  bool stop_ ABSL_GUARDED_BY(wake_mu_) = false;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_DEVICE_THREAD_H_
