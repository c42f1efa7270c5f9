// The link between host and GPU on its own time line. One copy of a direction at a time; while both directions copy,
// each goes at its slower rate (DirectionCost). A copy begins when its stream came to it, even where the stream's thread
// woke late, so lateness of the host does not add up. Thread-safe; waits are those of the copies.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_LINK_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_LINK_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "integration/simcuda/driver/machine/hardware_profile.h"

namespace simcuda {

// The arithmetic, without threads: what both directions have done by a time.
class LinkTime {
 public:
  // A copy begins on an idle direction: `alone_ns` is what it takes without the other direction, `both_share` the part of
  // that speed while the other direction copies.
  void Begin(int direction, int64_t begin_ns, double alone_ns, double both_share);
  // Counts what has been done up to `time_ns`, in the order in which copies end.
  void Advance(int64_t time_ns);
  bool busy(int direction) const { return directions_[direction].busy; }
  // When the direction's copy ends as things are now; or ended.
  int64_t End(int direction) const;

 private:
  struct Direction {
    bool busy = false;
    double left_ns = 0;  // of the time alone
    double share = 1;    // both directions' speed over that alone
    double at_ns = 0;    // up to where left_ns is counted; where it ended
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
  // Carries out one copy that is ready at `ready_ns`: calls `move` when its turn has come, returns at its end, which
  // is *begin_ns and the result on the link's time line.
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
