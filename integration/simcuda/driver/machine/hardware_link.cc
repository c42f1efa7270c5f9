#include "integration/simcuda/driver/machine/hardware_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {

void LinkTime::Begin(int direction, int64_t begin_ns, double alone_ns, double both_share) {
  Advance(begin_ns);  // the other direction has had the link to itself up to here
  const auto begin = static_cast<double>(begin_ns);
  // And no longer, where it has been counted further: the thread of this copy's stream woke late.
  Direction& other = directions_[1 - direction];
  if (other.busy && other.at_ns > begin)
    other.left_ns += (other.at_ns - std::max(begin, other.begin_ns)) * (1 - other.share);
  directions_[direction] = {true, alone_ns, both_share, begin, begin};
}

void LinkTime::AdvanceOne(int direction, double time_ns) {
  Direction& own = directions_[direction];
  if (!own.busy || time_ns <= own.at_ns) return;
  own.left_ns -= (time_ns - own.at_ns) * SpeedOf(direction);
  own.at_ns = time_ns;
}

void LinkTime::Advance(int64_t time_ns) {
  const double until = static_cast<double>(time_ns);
  for (;;) {
    // The copy that ends next, by then: from its end on the other one has the link to itself.
    int first = -1;
    for (int direction = 0; direction < 2; ++direction) {
      if (!directions_[direction].busy || EndOf(direction) > until) continue;
      if (first < 0 || EndOf(direction) < EndOf(first)) first = direction;
    }
    if (first < 0) break;
    const double end = EndOf(first);
    AdvanceOne(1 - first, end);
    directions_[first].busy = false;
    directions_[first].left_ns = 0;
    directions_[first].at_ns = std::max(end, directions_[first].at_ns);
  }
  AdvanceOne(0, until);
  AdvanceOne(1, until);
}

int64_t LinkTime::End(int direction) const {
  return std::llround(directions_[direction].busy ? EndOf(direction) : directions_[direction].at_ns);
}

int64_t Link::Enter(int direction, int64_t ready_ns, double alone_ns, double both_share) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t ticket = next_ticket_[direction]++;
  while (serving_[direction] != ticket) changed_.wait(lock);
  const int64_t begin = std::max(ready_ns, free_at_ns_[direction]);
  time_.Begin(direction, begin, alone_ns, both_share);
  return begin;
}

int64_t Link::Leave(int direction) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    time_.Advance(NowNs());
    if (!time_.busy(direction)) break;
    // A copy of the other direction that begins makes this too early, one that ends wakes us.
    changed_.wait_until(
        lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time_.End(direction))));
  }
  free_at_ns_[direction] = time_.End(direction);
  ++serving_[direction];
  changed_.notify_all();
  return free_at_ns_[direction];
}

Link& LinkOf(int device) {
  static Link* links =
      new Link[SIMCUDA_DEVICES_MAX];  // never destroyed: stream threads outlive static destructors
  return links[device];
}

}  // namespace simcuda
