// Refusals: the one channel for the messages of refusals, of an allocation, a launch, a copy or a pin.
// Residency and the gate write them; the C ABI, PyTorch's allocator and the reports read them. The class
// keeps the last text of each thread and the last text of all threads. The driver's codes travel separately,
// in statuses and results. There is one for the process. Any thread may call; nothing throws.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_REFUSALS_H_
#define SPILLWAY_ALLOCATOR_DRIVER_REFUSALS_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "io/os/sync.h"

namespace spillway::allocator {

class Refusals {
 public:
  // Called on the refusing thread, which has no lock, before the refused driver call returns to the
  // application.
  using Listener = void (*)();

  Refusals();

  // Notes that an allocation, or another call whose caller gets the status, was refused. Does nothing for OK.
  // Does not throw: when there is no memory for the text of Latest, only this thread's text is kept.
  void Record(const absl::Status& why);
  // Notes that a driver call of the application was refused. Its caller gets a code, and may ask for the text
  // by TakeCall.
  void RecordCall(const absl::Status& why);

  // Text of this thread's last refusal; "" when there was none since Forget. The text does not begin with
  // "Spillway:", which its readers add. It is valid until the thread's next refusal. At most kMaxTextBytes -
  // 1 bytes of it are kept.
  static constexpr size_t kMaxTextBytes = 2048;
  const char* OfThisThread() const;
  // Drops this thread's last refusal, since a new call begins.
  void Forget();
  // True once for each RecordCall of this thread without a later Record or Forget. OfThisThread keeps its
  // text.
  bool TakeCall();

  // Text of the latest refusal of any thread; "" when there was none.
  std::string Latest() const;

  // Sets the listener for the rest of the process; null removes it.
  void SetListener(Listener listener) { listener_.store(listener, std::memory_order_release); }

 private:
  void Keep(const absl::Status& why, bool call);

  const uint64_t id_;                        // of this object: a thread's text belongs to one object
  std::atomic<Listener> listener_{nullptr};  // released by SetListener, acquired by RecordCall
  mutable os::Mutex mu_{os::LockRank::kLog};
  std::string latest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_REFUSALS_H_
