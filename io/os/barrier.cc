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

bool HeavyBarrier() {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return true;
  SPILLWAY_CHECK(errno == ENOMEM);  // after registration there is no other reason
  return false;
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
