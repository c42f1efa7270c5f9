// Standstill: a time in which no kernel runs, while the device's thread changes the mapping at addresses that
// kernels may use without naming them (SoftBlocks). Launches wait right before the call of the driver,
// whatever blocks they name. A transfer that has joined goes on once no launch is being made and the GPU has
// done all work that it had been given.
//
// There is never a standstill where soft evictions are off, and a section then costs one read of a constant.
// Work on the GPU may never end because it waits for something that a waiting thread does next. It is
// therefore waited for one second only; then the exchange goes on beside it.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STANDSTILL_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STANDSTILL_H_

#include <cstdint>
#include <vector>

#include "allocator/residency/state/stream_clock.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "io/os/wait.h"

namespace spillway::allocator {

class Standstill {
 public:
  // `stopped` is the device's, from Core. There is never a standstill when `on` is false.
  Standstill(bool on, StreamClock* clock, const os::Atomic<bool>* stopped, os::WaitList* waits);

  bool on() const { return on_; }

  // Encloses a launch, from before the call of the driver until its work is numbered. Waits for the end of a
  // standstill, or until the device stops. Launching threads, without a lock and outside of read-side
  // sections.
  class Section {
   public:
    explicit Section(Standstill* standstill) : standstill_(standstill) { Enter(); }
    ~Section() { Leave(); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    // A launch that is to be repeated leaves before it waits for memory, because memory may come free only in
    // a standstill.
    void Enter() {
      if (__builtin_expect(standstill_->on_ && !inside_, 0)) standstill_->EnterSlow();
      inside_ = true;
    }
    void Leave() {
      if (__builtin_expect(standstill_->on_ && inside_, 0)) standstill_->LeaveSlow();
      inside_ = false;
    }

   private:
    Standstill* const standstill_;
    bool inside_ = false;
  };

  // Ends all waits when the device has stopped. Any thread without a lock.
  void EndWaits();

  // ---- Device's thread, at most with the residency's lock.

  // Joins the standstill if `*joined` is not set, and sets it; the first to join begins the standstill.
  // Returns true once no kernel runs any more. Otherwise the caller asks again at the next poll.
  bool Join(bool* joined);
  // Leaves the standstill if `*joined` is set. The last to leave ends it.
  void Leave(bool* joined);

 private:
  void EnterSlow();
  void LeaveSlow();
  bool Drained();

  const bool on_;
  StreamClock* const clock_;
  const os::Atomic<bool>* const stopped_;
  os::WaitList* const waits_;

  os::Mutex mu_{os::LockRank::kStandstill};
  os::CondVar changed_;
  bool under_way_ ABSL_GUARDED_BY(mu_) = false;
  int launches_ ABSL_GUARDED_BY(mu_) = 0;  // launches that are being made

  // Device's thread.
  int joined_ = 0;
  int64_t began_ = 0;     // in nanoseconds of the system's steady clock
  bool alone_ = false;    // no launch is being made
  bool drained_ = false;  // and the GPU has done all work that it had been given
  std::vector<TimelineValue> queued_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STANDSTILL_H_
