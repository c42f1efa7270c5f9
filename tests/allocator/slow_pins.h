// The stand-in's driver, but registrations of host memory take so long that a pool pins one slab at a time. For tests
// that count slabs. Any thread.

#ifndef SPILLWAY_TESTS_ALLOCATOR_SLOW_PINS_H_
#define SPILLWAY_TESTS_ALLOCATOR_SLOW_PINS_H_

#include "io/os/clock.h"
#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {

inline const CudaDriver* SlowPins() {
  static const auto real = CoreDevice::Driver()->cuMemHostRegister_v2;
  static const CudaDriver driver = [] {
    CudaDriver slow = *CoreDevice::Driver();
    slow.cuMemHostRegister_v2 = [](void* data, size_t bytes, unsigned flags) {
      const int64_t end = os::Clock::System()->NowNanos() + 17'000'000;
      while (os::Clock::System()->NowNanos() < end) {
      }
      return real(data, bytes, flags);
    };
    return slow;
  }();
  return &driver;
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_SLOW_PINS_H_
