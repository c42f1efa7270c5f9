// SpeedMeter: the speed of a drive in one direction, over the time in which it has requests. Idle time does
// not count, so the value outlives idle times. A guess answers until something is measured. TransferQueue
// keeps one meter for each direction; SpillStore asks them when it gives out slots. One thread begins and
// ends requests; any thread guesses and asks. Nothing can fail.

#ifndef SPILLWAY_IO_STORE_SPEED_METER_H_
#define SPILLWAY_IO_STORE_SPEED_METER_H_

#include <algorithm>
#include <cstdint>

#include "io/os/atomic.h"
#include "io/os/clock.h"

namespace spillway::io {

class SpeedMeter {
 public:
  // The value from elsewhere, bytes a second, that counts until a request has moved bytes; 0: there is none.
  void Guess(double bytes_per_second) {
    guess_.store(bytes_per_second > 0 ? static_cast<uint64_t>(bytes_per_second) : 0);
  }

  // A request goes to the drive. `now` is the clock of the queue, in ns, and never goes back.
  void Begin(int64_t now) {
    if (in_flight_++ == 0) last_event_.store(now);
  }

  // A request has ended with `bytes` moved, which may be 0.
  void End(uint64_t bytes, int64_t now) {
    // A drive that stood still and works again is not slow for the time that it missed.
    const int64_t took = std::min(now - last_event_.load(), kLongestTurn);
    last_event_.store(--in_flight_ == 0 ? kIdle : now);
    bytes_ += bytes;
    busy_nanos_.store(busy_nanos_.load() + took);
    if (bytes_ > kWindowBytes) {
      bytes_ /= 2;
      busy_nanos_.store(busy_nanos_.load() / 2);
    }
    known_bytes_.store(bytes_);
  }

  // Bytes a second; 0 when neither known nor guessed yet. Requests in flight count with their time and
  // without their bytes, so a drive that stands still becomes slower with each question.
  double BytesPerSecond(int64_t now) const {
    uint64_t bytes = known_bytes_.load();
    const int64_t last = last_event_.load();
    const int64_t busy = busy_nanos_.load() + (last == kIdle ? 0 : std::max<int64_t>(0, now - last));
    if (bytes == 0) {
      if (busy < kLongestTurn) return static_cast<double>(guess_.load());
      bytes = 1;  // it has not answered at all
    }
    return busy > 0 ? static_cast<double>(bytes) * os::kSecond / static_cast<double>(busy) : 0;
  }

 private:
  static constexpr int64_t kIdle = -1;
  static constexpr int64_t kLongestTurn = os::kSecond / 10;
  // Enough for a steady value, and little enough to follow a drive that becomes slow, because its bytes take
  // long.
  static constexpr uint64_t kWindowBytes = 16 << 20;

  // Used by the thread of the requests alone.
  uint32_t in_flight_ = 0;
  uint64_t bytes_ = 0;

  // Written by that thread. They are read one by one, so a value may mix two requests.
  os::Atomic<uint64_t> known_bytes_{0};
  os::Atomic<int64_t> busy_nanos_{0};
  os::Atomic<int64_t> last_event_{kIdle};  // clock, ns
  os::Atomic<uint64_t> guess_{0};          // any thread writes it
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SPEED_METER_H_
