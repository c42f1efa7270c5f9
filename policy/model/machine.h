// Machine: the model of a machine that planners, bounds and the simulator share: memory of three tiers, the
// links between them, and the unit in which tensors are split. The SSD may be several drives of unequal
// rates; each copy lies on one of them and comes back from it. The directions of PCIe may slow each other
// down. Pure; nothing fails.

#ifndef SPILLWAY_POLICY_MODEL_MACHINE_H_
#define SPILLWAY_POLICY_MODEL_MACHINE_H_

#include <vector>

#include "policy/model/units.h"

namespace spillway::policy {

// Rates of one drive, in bytes per second, more than 0.
struct Drive {
  double read = 0;
  double write = 0;
};

// Rates of the two directions of PCIe, or parts of them.
struct LinkRates {
  double in = 0;  // to the GPU
  double out = 0;
};

// Rates in bytes per second, more than 0.
struct Machine {
  Bytes gpu_bytes = 0;
  Bytes host_bytes = 0;  // the SSD takes whatever comes
  double pcie_in = 0;    // to the GPU, while nothing comes out
  double pcie_out = 0;   // while nothing comes in
  // The rates of both directions while both run: each no more than alone, and together no less than by taking
  // turns. The possible pairs of rates are the convex region with the corners (pcie_in, 0), (0, pcie_out) and
  // this one. Both 0: the directions are independent.
  LinkRates pcie_both = {};
  double ssd_read = 0;  // of all drives together
  double ssd_write = 0;
  // The SSD's drives, when there are several; the two rates above are the sums of theirs. Empty: one drive.
  std::vector<Drive> drives = {};
  bool ssd_shared = false;      // reads and writes of a drive share one limit
  Nanos transfer_latency = 0;   // added to each transfer, during which its copy queue is busy
  Bytes piece_bytes = 2 << 20;  // tensors may be moved in parts of whole pieces; 0: whole tensors
};

// Rounds `nanos` up to a multiple of 2 ns, 2 at least. Referees of schedules take times 1 ns apart for equal,
// so no two of our times are 1 ns apart.
Nanos ToTicks(double nanos);

// The drives of the SSD; at least one.
std::vector<Drive> DrivesOf(const Machine& machine);

// Whether each direction of PCIe is slower while the other runs.
bool DirectionsShare(const Machine& machine);
// Whether pcie_both has a value that its comment in Machine allows.
bool LinkIsPossible(const Machine& machine);
// Turns the measured rates of both directions into a possible pcie_both: neither rate above that alone, and
// together no lower than taking turns. Returns 0 for both (independent) where a rate is not known, that is
// not above 0.
LinkRates PossibleTogether(const Machine& machine, LinkRates measured);

// Reading and writing take at least bytes read x per_byte_read + bytes written x per_byte_written seconds.
struct SharedLimit {
  double per_byte_read = 0;
  double per_byte_written = 0;
};

// The limits of drives whose reads and writes share a limit. All traffic of the drives together obeys every
// one of them, and all traffic that obeys them can be spread over the drives, as far as its bytes may lie on
// any drive. There is one limit for each proportion of read and write rate that a drive has.
std::vector<SharedLimit> SharedLimits(const Machine& machine);

// The two limits of a PCIe link whose directions share: traffic to the GPU counts as read, traffic from it as
// written. A pair of rates is possible exactly if it obeys both. Empty where the directions are independent.
std::vector<SharedLimit> LinkLimits(const Machine& machine);
// The rates that the same link gives when each direction wants the part `wanted` of its rate alone (1: all of
// it); the result is in such parts, too. Both get what they want where that is possible. Otherwise they get
// the rates measured together, unless one direction wants less than its own of those: it gets that, and the
// other gets what is left.
LinkRates LinkParts(const Machine& machine, LinkRates wanted);

// The rates at which the drives write and read together when the bytes are spread such that all drives finish
// writing and reading at the same time, as DriveLoads::Pick (copy_queues.h) spreads them. The rates are the
// sums over the drives if reading and writing are in one proportion on all of them. They are lower otherwise,
// since bytes are read where they were written.
Drive RatesTogether(const Machine& machine);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_MACHINE_H_
