// Refusals: the one channel for the words of what was refused, at an allocation, a launch, a copy or a hold. Whoever refuses
// notes it here; the C ABI, PyTorch's allocator and the user read it. It keeps the last words of each thread and the last
// of all; what the driver answers in numbers travels in statuses and results. One for the process. Any thread.

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
  // Called on the refusing thread, no lock held, before the refused driver call returns to the application.
  using Listener = void (*)();

  Refusals();

  // An allocation, or another call whose caller gets the status, was refused. Nothing for OK. Does not throw: where
  // there is no memory for the words of all threads, only this thread's are kept.
  void Note(const absl::Status& why);
  // A driver call of the application was refused: its caller gets a number, and may ask for the words by TakeCall.
  void NoteCall(const absl::Status& why);

  // Words of this thread's last refusal, "" when none since Forget: without "Spillway:", which whoever shows them puts
  // before. Valid until the thread's next refusal; at most kMostWords - 1 bytes are kept.
  static constexpr size_t kMostWords = 2048;
  const char* OfThisThread() const;
  // This thread's last refusal is over: a new call begins.
  void Forget();
  // True once for each NoteCall of this thread that no later Note or Forget has covered. Its words stay OfThisThread's.
  bool TakeCall();

  // Words of the latest refusal of any thread, "" when there was none.
  std::string Latest() const;

  // For the rest of the process; null: none.
  void SetListener(Listener listener) { listener_.store(listener, std::memory_order_release); }

 private:
  void Keep(const absl::Status& why, bool call);

  const uint64_t id_;                        // of this object: a thread's words belong to one
  std::atomic<Listener> listener_{nullptr};  // released by SetListener, acquired by NoteCall
  mutable os::Mutex mu_{os::LockRank::kLog};
  std::string latest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_REFUSALS_H_
