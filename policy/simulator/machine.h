// Machine: what planners, bounds and the simulator take a machine to be: memory of three tiers, the links
// between them, and the unit in which tensors are split. The SSD may be several drives of unequal rates; each
// copy lies on one of them and comes back from it. Pure; nothing fails.

#ifndef SPILLWAY_POLICY_SIMULATOR_MACHINE_H_
#define SPILLWAY_POLICY_SIMULATOR_MACHINE_H_

#include <vector>

#include "policy/trace/units.h"

namespace spillway::policy {

// Rates of one drive, in bytes per second, more than 0.
struct Drive {
  double read = 0;
  double write = 0;
};

// Rates in bytes per second, more than 0. The two directions of PCIe are independent.
struct Machine {
  Bytes gpu_bytes = 0;
  Bytes host_bytes = 0;  // the SSD takes whatever comes
  double pcie_in = 0;    // to the GPU
  double pcie_out = 0;
  double ssd_read = 0;  // of all drives together
  double ssd_write = 0;
  // What the SSD consists of, when it is several drives; the two rates above are their sums. Empty: one
  // drive.
  std::vector<Drive> drives = {};
  bool ssd_shared = false;      // reads and writes of a drive share one limit
  Nanos transfer_latency = 0;   // added to each transfer, during which its copy queue is busy
  Bytes piece_bytes = 2 << 20;  // tensors may be moved in parts of whole pieces; 0: whole tensors
};

// At least one.
std::vector<Drive> DrivesOf(const Machine& machine);

// Reading and writing take at least bytes read x per_byte_read + bytes written x per_byte_written seconds.
struct SharedLimit {
  double per_byte_read = 0;
  double per_byte_written = 0;
};

// Of drives whose reads and writes share a limit: what they read and write together obeys all of these, and
// whatever obeys all of these can be spread over them (as far as it may lie on any drive). One for drives
// whose rates are in the same proportion.
std::vector<SharedLimit> SharedLimits(const Machine& machine);

// What the drives write and read together when each gets as large a part of all bytes as makes them finish
// writing and reading at one time, as DriveLoads::Pick (copy_queues.h) does it. The sums of the rates, where
// reading and writing are in one proportion on all of them; else less, since bytes are read where they were
// written.
Drive RatesTogether(const Machine& machine);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_MACHINE_H_
