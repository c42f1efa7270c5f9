// `spillway simulate --sweep`: the same trace on a row of machines that differ in one option. Runs them on
// several threads and formats the table and its JSON. sweep_page chooses what the page shows, and `spillway
// estimate` fills rows of its own (estimate_run). Prints nothing. Wrong use is an error; a machine on which
// the job cannot run is a row with the reason.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_SWEEP_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_SWEEP_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integration/cli/common/workers.h"
#include "integration/cli/simulate/simulation_run.h"
#include "policy/model/workload.h"

namespace spillway::integration {

enum class SweepUnit { kBytes, kBytesPerSecond };

struct SweepRow {
  size_t sweep = 0;    // which of the sweeps, in the order of the command line
  std::string option;  // gpu-memory
  SweepUnit unit = SweepUnit::kBytes;
  double value = 0;
  std::string value_text;  // 16GiB: the option's value for this row alone
  std::string problem;     // why the job cannot run there; empty: it ran
  SimulateResult result;

  bool Ran() const { return problem.empty(); }
  std::string Setting() const { return option + "=" + value_text; }
};

// Returns the form that --sweep accepts, as text.
std::string SweepForm();

// Returns the rows of all sweeps of `options`, in order, whatever the number of workers. Returns an error for
// wrong use; a machine on which the job cannot run is a row.
absl::StatusOr<std::vector<SweepRow>> RunSweeps(const SimulateOptions& options,
                                                const policy::Workload& workload, Workers* workers);

std::string SweepText(const std::vector<SweepRow>& rows);
// {"options": ..., "sweep": [one object a row, with the keys of a single run]}
std::string SweepJson(const SimulateOptions& options, const std::vector<SweepRow>& rows);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_SWEEP_H_
