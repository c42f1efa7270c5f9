// Monotonic time behind an interface, so that tests own it.

#ifndef SPILLWAY_IO_OS_CLOCK_H_
#define SPILLWAY_IO_OS_CLOCK_H_

#include <cstdint>

namespace spillway::os {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary fixed point; never goes back. Any thread.
  virtual int64_t NowNanos() const = 0;
  // CLOCK_MONOTONIC; lives for ever.
  static const Clock* System();
};

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_CLOCK_H_
