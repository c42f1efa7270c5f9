// One estimate: from the options of `spillway estimate` to the iteration's trace, whether it fits, and the
// simulator's result. Used by the subcommand, its report and its sweep, on one thread, with workers for the
// simulations. Reads the model's and the machine's file; prints nothing. The result does not depend on the
// number of workers. Fails for wrong options and files.

#ifndef SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_RUN_H_
#define SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integration/cli/common/workers.h"
#include "integration/cli/estimate/estimate_machine.h"
#include "integration/cli/simulate/simulation_run.h"
#include "integration/cli/simulate/sweep.h"
#include "policy/estimate/training_iteration.h"

namespace spillway::integration {

// The options as given.
struct EstimateOptions {
  std::string model;  // a name of policy::ShapeNames(), a config file, or a folder with config.json
  std::string batch = "1", sequence = "1024", target, accumulate = "1", lora = "0";
  std::string dtype = "autocast", optimizer = "adamw", attention = "sdpa", zero_grad = "after-update";
  bool checkpointing = false, clip = false, lora_dropout = false;
  std::string gpu = "h100", machine;  // `machine`, a file, wins
  std::string gpu_memory, host_memory = "128GiB", disk;
  std::string kernel_efficiency = "both";
  bool smallest = false;          // whether to search for the smallest GPU
  std::string sweep;              // the page to write, with the times of the fast end; empty: none
  std::string save_trace;         // path for the trace, with the times of the slow end; empty: none
  std::string library_directory;  // folder of the drawing library
  unsigned threads = 0;           // 0: one for each processor
  bool json = false;
};

// The question for one budget, and its answer.
struct EstimateFit {
  policy::Bytes budget = 0;
  policy::Bytes small = 0;   // blocks up to 1 MiB, the matrix library's workspace, external memory
  policy::Bytes blocks = 0;  // what is left for blocks that may move
  policy::Bytes launch = 0;  // the largest launch's blocks
  std::string launch_name;
  policy::Bytes beyond = 0;   // bytes that must have a place off the GPU at the peak
  policy::Bytes off_gpu = 0;  // host memory and disk
  bool everything = false;    // all blocks fit: nothing moves
  std::string problem;        // which term is short and by how much; empty: it fits
};

// The result for kernels of one end of the machine's ranges.
struct EstimateTime {
  const char* efficiency = "";  // low, high
  policy::Nanos uncapped = 0;   // kernels alone
  SimulateResult run;           // valid if the job fits
};

struct Estimate {
  policy::ModelShape shape;
  policy::TrainingOptions training;
  EstimateMachine machine;
  policy::TapeResult tape;
  EstimateFit fit;
  std::vector<EstimateTime> times;
  std::optional<policy::Bytes> smallest;  // budget with 95 % of the uncapped speed
  policy::Bytes disk_bytes = 0;
  double ssd_read = 0, ssd_write = 0;  // 0: no disk
  policy::Bytes host_bytes = 0;
};

// Returns InvalidArgument or NotFound for wrong options and files; otherwise an estimate, whose fit has the
// problem if the job does not fit.
absl::StatusOr<Estimate> MakeEstimate(const EstimateOptions& options, Workers* workers);

// One end of the machine's range.
enum class End : uint8_t { kSlow, kFast };
// Returns the end that --kernel-efficiency names; `otherwise` if it names both.
End EndOf(const EstimateOptions& options, End otherwise);

// Simulates the same job on budgets from the least that runs to the peak, for three sizes of host memory.
std::vector<SweepRow> SweepEstimate(const Estimate& estimate, End end, Workers* workers,
                                    SimulateOptions* shown);

// Returns the trace with the times of one end.
policy::Workload WithTimes(const policy::TapeResult& tape, const EstimateMachine& machine, End end);

EstimateFit FitOf(const Estimate& estimate, policy::Bytes budget, policy::Bytes host_bytes);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_RUN_H_
