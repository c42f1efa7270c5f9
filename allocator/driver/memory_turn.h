// MemoryTurn: lets one of our threads at a time into the calls of the driver that create, map, open, unmap or
// release GPU memory, in the order in which the threads come. The driver carries these calls out one at a
// time anyway, under a lock that launches may need. A launch that comes meanwhile waits for one such call; it
// would wait for two if a second thread of ours stood in the driver's queue. There is one MemoryTurn for the
// process, shared by its devices (CudaDriver::memory_turn).
//
// cuMemHostRegister takes no turn, since it takes milliseconds for pages of the system. Any thread may call,
// without a lock of the residency. Nothing fails; the wait is as long as the driver's calls before it.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_MEMORY_TURN_H_
#define SPILLWAY_ALLOCATOR_DRIVER_MEMORY_TURN_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "io/os/sync.h"

namespace spillway::allocator {

class MemoryTurn {
 public:
  // Waits until the threads that came before are done, then makes the call and returns its result.
  template <typename Call>
  auto Run(const Call& call) {
    Enter();
    const auto result = call();
    Leave();
    return result;
  }

  // Number of threads that are in a call or wait for their turn. For tests.
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
