// The time of a recorded iteration on other machines: the simulator runs it on the machine of the run, and
// with more and less GPU memory, host memory and disk speed. An iteration that fits is simulated with less
// GPU memory only. For `spillway report`. Takes seconds of processor time, on several threads; prints
// nothing, touches no file. A result that could not be simulated has the reason.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_WHAT_IF_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_WHAT_IF_H_

#include <optional>
#include <string>
#include <vector>

#include "integration/cli/common/workers.h"
#include "integration/cli/report/report_data.h"

namespace spillway::integration {

struct WhatIfPoint {
  double value = 0;   // bytes, or bytes a second
  double factor = 1;  // of what the run had; 1: the run's own
  bool runs = false;
  std::string problem;  // why it does not
  double iteration_s = 0, disk_bytes = 0;
  double percent_of_bound = 0;  // at least: of the quick bound
};

enum class WhatIfAxis { kGpuMemory, kHostMemory, kDisk };

struct WhatIfSweep {
  WhatIfAxis axis = WhatIfAxis::kGpuMemory;
  std::vector<WhatIfPoint> points;  // ascending; none: it was not swept
  std::string missing;              // why not
};

struct WhatIf {
  std::string missing;               // why nothing was simulated; empty: the rest is valid
  std::vector<std::string> assumed;  // figures of the machine that were not measured
  double kernels = 0, tensors = 0;
  double peak_live_bytes = 0;
  // On the machine of the run. No plan that leaves spilled bytes in their tier is faster than the bound; ours
  // do leave them.
  double iteration_s = 0, ideal_s = 0, bound_s = 0;
  bool bound_is_near = false;  // it is as long as it can be, to some hundredths
  double gpu_bytes = 0, host_bytes = 0, link_in = 0, link_out = 0, disk_in = 0, disk_out = 0;
  Known link_in_both, link_out_both;  // while both directions run; none: taken as independent
  std::vector<WhatIfSweep> sweeps;    // one for each axis
};

// `most_cpu_seconds`: of all threads of this process from the call on; machines whose turn comes later are
// left out. The result for the others does not depend on the number of workers.
WhatIf SimulateWhatIf(const ReportData& data, Workers* workers, double most_cpu_seconds = 60);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_WHAT_IF_H_
