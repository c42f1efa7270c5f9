// The link between host and GPU on its own time line. Each direction carries one copy at a time; while both
// directions copy, each goes at its slower rate (DirectionCost). A copy begins when its stream came to it,
// even if the stream's thread woke late, so lateness of the host does not add up. Thread-safe; its waits are
// those of the copies.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_LINK_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_LINK_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "integration/simcuda/driver/machine/hardware_profile.h"

namespace simcuda {

// The arithmetic, without threads: the progress of both directions at a time.
class LinkTime {
 public:
  // Begins a copy on an idle direction: `alone_ns` is its time without the other direction, `both_share` the
  // part of that speed while the other direction copies.
  void Begin(int direction, int64_t begin_ns, double alone_ns, double both_share);
  // Counts the progress up to `time_ns`, in the order in which copies end.
  void Advance(int64_t time_ns);
  bool busy(int direction) const { return directions_[direction].busy; }
  // Returns when the direction's copy ends in the present state, or ended.
  int64_t End(int direction) const;

 private:
  struct Direction {
    bool busy = false;
    double left_ns = 0;  // of the time alone
    double share = 1;    // both directions' speed over that alone
    double at_ns = 0;    // time up to which left_ns is counted; the end
    double begin_ns = 0;
  };
  double SpeedOf(int direction) const {
    return directions_[1 - direction].busy ? directions_[direction].share : 1;
  }
  double EndOf(int direction) const {
    return directions_[direction].at_ns + directions_[direction].left_ns / SpeedOf(direction);
  }
  void AdvanceOne(int direction, double time_ns);

  Direction directions_[2];
};

class Link {
 public:
  // Carries out one copy that is ready at `ready_ns`: calls `move` when its turn has come, and returns at its
  // end. *begin_ns and the result are its times on the link's time line.
  template <typename Move>
  int64_t Copy(int direction, int64_t ready_ns, double alone_ns, double both_share, int64_t* begin_ns,
               Move move) {
    *begin_ns = Enter(direction, ready_ns, alone_ns, both_share);
    move();
    return Leave(direction);
  }

 private:
  int64_t Enter(int direction, int64_t ready_ns, double alone_ns, double both_share);
  int64_t Leave(int direction);

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  LinkTime time_;
  uint64_t next_ticket_[2] = {0, 0};
  uint64_t serving_[2] = {0, 0};
  int64_t free_at_ns_[2] = {0, 0};
};

Link& LinkOf(int device);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_LINK_H_
