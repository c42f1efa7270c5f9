// Clock: monotonic time behind an interface, so that tests can set it. Every class below integration that
// measures time takes a Clock in its constructor. Any thread; cannot fail.

#ifndef SPILLWAY_IO_OS_CLOCK_H_
#define SPILLWAY_IO_OS_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace spillway::os {

inline constexpr int64_t kSecond = 1'000'000'000;  // in nanoseconds

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary fixed point; never goes back. Any thread.
  virtual int64_t NowNanos() const = 0;
  // CLOCK_MONOTONIC; lives forever.
  static const Clock* System();
};

// The system's clock for std::chrono, as the clock of time points and durations, for deadlines of waits. It
// asks Clock::System, so it has the simulation's time in the simulation.
struct SteadyClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<SteadyClock>;
  static constexpr bool is_steady = true;
  static time_point now() { return time_point(duration(Clock::System()->NowNanos())); }
};

// Nanoseconds since 1970 by the machine's wall clock, which can be set back. For records and for people. Any
// thread; takes no lock.
int64_t UnixNanos();

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_CLOCK_H_
