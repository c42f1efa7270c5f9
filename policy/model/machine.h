// Machine: what planners, bounds and the simulator take a machine to be: memory of three tiers, the links
// between them, and the unit in which tensors are split. The SSD may be several drives of unequal rates; each
// copy lies on one of them and comes back from it. The directions of PCIe may slow each other down. Pure;
// nothing fails.

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
  // What is reached in each direction while both run: no more than alone, and no less together than by taking
  // turns. What else is reached lies in the convex region of (pcie_in, 0), (0, pcie_out) and this. Both 0:
  // the directions are independent.
  LinkRates pcie_both = {};
  double ssd_read = 0;  // of all drives together
  double ssd_write = 0;
  // What the SSD consists of, when it is several drives; the two rates above are their sums. Empty: one
  // drive.
  std::vector<Drive> drives = {};
  bool ssd_shared = false;      // reads and writes of a drive share one limit
  Nanos transfer_latency = 0;   // added to each transfer, during which its copy queue is busy
  Bytes piece_bytes = 2 << 20;  // tensors may be moved in parts of whole pieces; 0: whole tensors
};

// `nanos`, rounded up to a multiple of 2 ns, 2 at least. Referees of schedules take times 1 ns apart for
// equal; none of ours are.
Nanos ToTicks(double nanos);

// At least one.
std::vector<Drive> DrivesOf(const Machine& machine);

// Whether each direction of PCIe is slower while the other runs.
bool DirectionsShare(const Machine& machine);
// Whether pcie_both is what Machine says that it is.
bool LinkIsPossible(const Machine& machine);
// The measured rates together made such that they are possible: not above those alone, and together no lower
// than taking turns. Independent where they are not known, that is not above 0.
LinkRates PossibleTogether(const Machine& machine, LinkRates measured);

// Reading and writing take at least bytes read x per_byte_read + bytes written x per_byte_written seconds.
struct SharedLimit {
  double per_byte_read = 0;
  double per_byte_written = 0;
};

// Of drives whose reads and writes share a limit: what they read and write together obeys all of these, and
// whatever obeys all of these can be spread over them (as far as it may lie on any drive). One for drives
// whose rates are in the same proportion.
std::vector<SharedLimit> SharedLimits(const Machine& machine);

// Of PCIe, whose directions share: to the GPU is read, from it is written. What both directions do obeys
// both, and whatever obeys both is possible. None where they are independent.
std::vector<SharedLimit> LinkLimits(const Machine& machine);
// The same link's rates when each direction wants the part of its own rate that `wanted` says (1: all of it):
// parts again. As wanted where that is possible. Else as measured together; a direction that wants less than
// that has it, and leaves the rest to the other.
LinkRates LinkParts(const Machine& machine, LinkRates wanted);

// What the drives write and read together when each gets as large a part of all bytes as makes them finish
// writing and reading at one time, as DriveLoads::Pick (copy_queues.h) does it. The sums of the rates, where
// reading and writing are in one proportion on all of them; else less, since bytes are read where they were
// written.
Drive RatesTogether(const Machine& machine);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_MACHINE_H_
