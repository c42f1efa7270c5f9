#include "io/os/barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "io/os/check.h"

namespace spillway::os {
namespace {

constexpr int kSpins = 500;  // about 10 us

}  // namespace

bool RegisterAsymmetricBarrier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void HeavyBarrier() {
  // Registered, it can only fail for want of memory. To go on without it would be to miss stores.
  while (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
    SPILLWAY_CHECK(errno == ENOMEM);
    SpinPause(kSpins);
  }
}

void SpinPause(int spins) {
  if (spins < kSpins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    return;
  }
  constexpr timespec kNap = {0, 20'000};
  nanosleep(&kNap, nullptr);
}

}  // namespace spillway::os
