#include "io/os/clock.h"

#include <ctime>

namespace spillway::os {
namespace {

class SystemClock : public Clock {
 public:
  int64_t NowNanos() const override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
};

}  // namespace

const Clock* Clock::System() {
  static const SystemClock* const clock =
      new SystemClock;  // never destroyed: threads may ask until the process ends
  return clock;
}

int64_t UnixNanos() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

}  // namespace spillway::os
