// LpTimeline: the iteration as the LP sees it. Points are starts and ends of kernels at which something
// happens; slots lie between them. Points at which nothing happens and no more memory is needed than at their
// neighbors are left out. The LP's value stays the same, since whatever a solution moves can be spread evenly
// over the joined slot. Pure data; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_OFFLINE_LP_TIMELINE_H_
#define SPILLWAY_POLICY_OFFLINE_LP_TIMELINE_H_

#include <cstdint>
#include <vector>

#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/workload.h"

namespace spillway::policy {

// Slot p ends at point p and begins at point p - 1; slot 0 begins at the last point (the iteration repeats).
struct LpSlot {
  Nanos duration = 0;
  bool stretches = false;  // it contains a gap, which may last any time
  uint32_t waiting = 0;    // the kernel behind the gap
  int64_t need = 0;        // bytes that must be away at its end; 0: none
};

// An idle interval that covers a kernel in need, with the points between which things may happen.
struct LpInterval {
  uint32_t interval = 0;  // index into Lifetimes::intervals
  Bytes bytes = 0;        // of the tensor
  uint32_t release = 0;   // the content may be copied out from here on
  uint32_t after = 0;     // away from here on at the earliest
  uint32_t before = 0;    // on the GPU again
  uint32_t version = 0;
  uint32_t place = 0;  // 0: the first of its version
  bool returns = true;
  bool never_dirty = false;
  // Whether the way from `after`, or from `release`, to `before` goes round once more than the points show.
  // Only if slots were joined that are longer than a use (coarse_timeline.h).
  bool away_over_a_round = false, kept_over_a_round = false;
};

struct LpTimeline {
  std::vector<LpSlot> slots;
  std::vector<LpInterval> intervals;  // by version, then place
  Nanos ideal = 0;

  // Returns the nominal time from point `from` on to point `to`, which comes after it, over the iteration's
  // end if need be.
  Nanos Between(uint32_t from, uint32_t to) const;
  // Returns how many rounds' contents of an interval are in progress at the last point: those from `from`
  // (`after` or `release`) to `before`. Contents that begin there have not begun, and those that end there
  // have ended.
  uint32_t OpenAtLast(uint32_t from, uint32_t before, bool over_a_round) const;

  std::vector<Nanos> ends;  // nominal, of each slot, from the last point on
};

// Tensors without intervals in `lifetimes` (those under its least size) count as 0 bytes while they are idle.
// No slots: every kernel fits.
LpTimeline MakeLpTimeline(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_LP_TIMELINE_H_
