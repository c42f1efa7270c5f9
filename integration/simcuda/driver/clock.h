// The one clock of the stand-in: CLOCK_MONOTONIC in nanoseconds, and sleeping until a time on it.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CLOCK_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CLOCK_H_

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace simcuda {

inline int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline void SleepUntil(int64_t time_ns) {
  const timespec until = {time_ns / 1'000'000'000, time_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CLOCK_H_
