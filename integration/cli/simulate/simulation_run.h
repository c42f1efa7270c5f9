// One run of `spillway simulate`: its options, and the result of planning a workload for one machine and
// executing the plan in the simulator. The subcommand, its report and the sweep all use it, the sweep on
// several threads; it prints nothing and touches no file. Fails for wrong options, and if the workload cannot
// run on the machine.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATION_RUN_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATION_RUN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/bound/quick_bound.h"
#include "policy/model/workload.h"
#include "policy/simulator/execution.h"

namespace spillway::integration {

// The options as given; sizes and rates are texts such as 40GiB, 128GB, 15.754e9.
struct SimulateOptions {
  std::string trace;  // a source that ReadTrace accepts
  std::string gpu_memory = "40GiB", host_memory = "128GiB";
  std::string pcie, pcie_in, pcie_out;  // the last two win over the first
  std::string pcie_both;                // "IN,OUT"; empty: the directions are independent
  bool plan_independent = false;        // the plan is made as if they were, whatever pcie_both is
  std::string ssd_read = "3.2e9", ssd_write = "3.2e9";
  bool ssd_shared = false;
  double latency_us = 0;
  std::string piece = "2MiB";
  std::string policy = "plan";
  std::string bound = "quick";  // quick, coarse, coarse-one-tier, lp or lp-one-tier
  uint32_t iterations = 6;
  double noise = 0;
  uint64_t seed = 1;
  std::string schedule;  // file to write; empty: none
  std::string convert;   // file (or folder, if it ends in /) to write the trace to in the other form
  std::vector<std::string> sweep;
  std::string html;               // page to write; empty: none
  std::string library_directory;  // folder of the drawing library
  unsigned threads = 0;           // for rows of sweeps; 0: one for each processor
  bool json = false;

  std::string PcieIn() const { return pcie_in.empty() ? Pcie() : pcie_in; }
  std::string PcieOut() const { return pcie_out.empty() ? Pcie() : pcie_out; }

 private:
  std::string Pcie() const { return pcie.empty() ? "15.754e9" : pcie; }
};

// The facts about one machine after a run.
struct SimulateResult {
  policy::Execution execution;
  policy::QuickBound quick_bound;
  policy::Nanos bound = 0;  // of the kind asked for; with noise, of the kernels with their actual times
  std::string bound_kind = "quick";
  bool bound_is_near = false;  // by its kind: the LP's, or within some hundredths of it
  double bound_s = 0;          // CPU seconds
  std::string policy;
  double plan_first_s = 0, plan_best_s = 0;  // CPU seconds
  uint32_t trials = 0;
  size_t kernels = 0, tensors = 0;  // of the trace
  int64_t peak_live_bytes = 0;

  double PercentOfBound() const;
  // Returns whether that is the share of the best speed to 2 points: the bound is near, or the share is so
  // great that no more can be missing. Otherwise the share is at least that.
  bool ShareIsKnown() const { return bound_is_near || PercentOfBound() >= kMinShareKnown; }

  static constexpr double kMinShareKnown = 98;
};

// Return the CPU time of this process, and of the calling thread, so far.
double CpuSeconds();
double ThreadCpuSeconds();

// Plans `workload` for the machine of `options` and executes the plan. Takes seconds of CPU time, minutes
// with the LP's bound, some seconds more with a coarse one. Thread-safe. ResourceExhausted: the workload
// cannot run on that machine; InvalidArgument: an option is wrong.
absl::StatusOr<SimulateResult> RunOne(const SimulateOptions& options, const policy::Workload& workload);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_SIMULATION_RUN_H_
