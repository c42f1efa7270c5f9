// SharedLink: the rates of a simulated machine's copies over a PCIe link whose directions slow each other
// down. Each copy is asked for at the rate that it would have beside those of its own direction. While both
// directions want more than they reach together, the host's copies become slower, and the drives' where that
// is not enough. A copy changes its rate at the end of a unit (a piece, or 2 MiB of a whole tensor). The
// bytes between two changes are a segment of one rate, since a schedule has one rate for each of its moves. A
// copy that needs others to become slower starts when their units have ended. Private to the simulator;
// nothing fails.

#ifndef SPILLWAY_POLICY_SIMULATOR_SHARED_LINK_H_
#define SPILLWAY_POLICY_SIMULATOR_SHARED_LINK_H_

#include <cstddef>
#include <vector>

#include "policy/model/machine.h"

namespace spillway::policy {

class SharedLink {
 public:
  // Numbered as in CopyQueues: out to the host and to each drive, then in from each of these.
  using Queue = size_t;

  // Bytes of a copy, from an offset that is whole units, at one rate.
  struct Segment {
    Bytes first = 0, last = 0;
    Nanos start = 0, end = 0;
    bool ends_copy = false;
  };

  // `tiers`: 1 for the host, and the number of drives. The machine outlives it.
  SharedLink(const Machine& machine, size_t tiers);

  static constexpr Bytes kUnitOfWhole = 2 << 20;
  Bytes unit() const { return unit_; }

  // A new round: no copy is known to want to begin.
  void ForgetWanted();
  // Whether a copy may begin in the queue now, asked for at `rate` (bytes per second). If not, the other
  // copies become slower for it at the end of their units.
  bool MayBegin(Queue queue, double rate, Nanos now);
  // Begins the copy of `bytes`, after `latency`.
  void Begin(Queue queue, double rate, Bytes bytes, Nanos latency, Nanos now);
  // Gives up the copy under way in the queue: it ends with the unit that is being moved.
  void Shorten(Queue queue, Nanos now);
  // Ends the round: each copy gets the rate that is right beside those under way and wanted, at once or at
  // the end of its unit.
  void Arrange(Nanos now);

  // The end of the segment under way in the queue, as far as it is known; meaningful while a copy is under
  // way.
  Nanos end(Queue queue) const { return copies_[queue].end; }
  // Ends the segment now, and the copy if nothing is left of it. The caller calls Arrange afterwards.
  Segment EndSegment(Queue queue, Nanos now);
  // The rest of the copy if its rate does not change any more.
  Segment Rest(Queue queue) const;

 private:
  struct Copy {
    bool active = false;
    double asked = 0;  // rate, beside those of its own direction
    double rate = 0;   // of this segment
    Bytes done = 0;    // before this segment
    Bytes bytes = 0;   // of the copy
    Nanos start = 0;   // of this segment
    Nanos latency = 0;
    Nanos end = 0;
  };

  // The right rate of each copy, by queue: of those under way and, if `wanted`, those that want to begin. 0:
  // no copy.
  std::vector<double> RightRates(bool wanted) const;
  void ShareDirection(bool out, double part, std::vector<double>* rates) const;
  bool Possible(Queue queue, double rate) const;  // beside the present rates of the others
  void SetRate(Copy* copy, double rate) const;
  Nanos EndOf(const Copy& copy, Bytes bytes) const;
  Bytes BytesToUnit(const Copy& copy, Nanos now) const;
  bool IsOut(Queue queue) const { return queue < tiers_; }
  double Alone(Queue queue) const { return IsOut(queue) ? machine_.pcie_out : machine_.pcie_in; }

  const Machine& machine_;
  const size_t tiers_;
  const Bytes unit_;
  std::vector<Copy> copies_;
  std::vector<double> wanted_;  // rates asked for by copies that wait for others to give way; 0: none
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_SHARED_LINK_H_
