// Machine: what the offline planner, the bound and the simulator take a machine to be: memory of three tiers, the links
// between them, and the unit in which tensors are split.

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
  // What the SSD consists of, when it is several drives; the two rates above are their sums. Empty: one drive.
  std::vector<Drive> drives = {};
  bool ssd_shared = false;      // reads and writes of a drive share one limit
  Nanos transfer_latency = 0;   // added to each transfer, during which its lane is busy
  Bytes piece_bytes = 2 << 20;  // tensors may be moved in parts of whole pieces; 0: whole tensors
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_MACHINE_H_
