// MemoryTurn: one thread of ours at a time is in a call of the driver that creates, maps, opens, unmaps or
// releases GPU memory, in the order in which they come. The driver carries these calls out one at a time
// anyway, under a lock that launches may need: a launch that comes meanwhile waits for one of them, and would
// wait for two with a second thread of ours in the driver's queue. One for the process, shared by its devices
// (CudaDriver::memory_turn).
//
// cuMemHostRegister takes no turn: it takes milliseconds for pages of the system. Any thread may call; none
// holds a lock of the residency then. Nothing fails; the wait is as long as the driver's calls before it.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_MEMORY_TURN_H_
#define SPILLWAY_ALLOCATOR_DRIVER_MEMORY_TURN_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "io/os/sync.h"

namespace spillway::allocator {

class MemoryTurn {
 public:
  // Waits until those who came before are done, then makes the call. Returns what it returns.
  template <typename Call>
  auto Run(const Call& call) {
    Enter();
    const auto result = call();
    Leave();
    return result;
  }

  // Threads that are in a call or wait for their turn. For tests.
  uint64_t standing() const {
    const os::MutexLock lock(&mu_);
    return came_ - done_;
  }

 private:
  void Enter();
  void Leave();

  mutable os::Mutex mu_{os::LockRank::kMemoryTurn};
  os::CondVar next_;
  uint64_t came_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_MEMORY_TURN_H_
