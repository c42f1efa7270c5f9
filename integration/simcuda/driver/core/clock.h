// The one clock of the stand-in: CLOCK_MONOTONIC in nanoseconds, and sleeping until a time on it. The times
// of the log, of events, of copies and of a machine's costs all come from it, so they can be compared.
// Thread-safe; no call fails. Every process of the machine reads the same clock.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_CLOCK_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_CLOCK_H_

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace simcuda {

// The interval at which a waiting thread reads memory that another process, or the host, writes.
inline constexpr int64_t kPollNs = 20'000;

// Returns nanoseconds since a time that is the same until the machine restarts.
inline int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Returns at once if the time has passed. A signal does not end the sleep early. It may end late, by as much
// as the system allows: a caller that needs better spins at the end (hardware_time.cc).
inline void SleepUntil(int64_t time_ns) {
  const timespec until = {time_ns / 1'000'000'000, time_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_CLOCK_H_
