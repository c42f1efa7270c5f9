// Standstill: a time in which no kernel runs, while the device's thread changes what is mapped at addresses that kernels
// may use without naming them (SoftBlocks). Launches wait right before the call of the driver, whatever they name; who has
// joined goes on once no launch is being made and the GPU has done all that it had been given.
//
// Where soft evictions are off there is none, and a section costs a look at a constant. Work that never ends because it
// waits for what a waiting thread does next is waited for one second: then the exchange goes on beside it.

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
  // `stopped`: the device's, as Core has it. With `on` false there is never one.
  Standstill(bool on, StreamClock* clock, const os::Atomic<bool>* stopped, os::WaitList* waits);

  bool on() const { return on_; }

  // A launch: from before the call of the driver until what it has queued is numbered. Waits for the end of a standstill,
  // or until the device stops. Launching threads, without a lock or a read-side section.
  class Section {
   public:
    explicit Section(Standstill* standstill) : standstill_(standstill) { Enter(); }
    ~Section() { Leave(); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    // A launch that is to be repeated leaves before it waits for memory, which may come free in a standstill alone.
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

  // The device has stopped: who waits goes on. Any thread without a lock.
  void EndWaits();

  // ---- Device's thread, at most with the residency's lock.

  // Joins the standstill, which begins with the first, if `*joined` is not set, and sets it. True once no kernel runs any
  // more; to be asked again at the next poll otherwise.
  bool Join(bool* joined);
  // Leaves it, if `*joined` is set. With the last one it ends.
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
  int launches_ ABSL_GUARDED_BY(mu_) = 0;  // that are being made

  // Device's thread.
  int joined_ = 0;
  int64_t began_ = 0;     // in nanoseconds of the system's steady clock
  bool alone_ = false;    // no launch is being made
  bool drained_ = false;  // and the GPU has done all that it had been given
  std::vector<TimelineValue> queued_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STANDSTILL_H_
