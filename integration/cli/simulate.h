// `spillway simulate`: plans a recorded iteration for a machine that need not exist, executes the plan in the simulator
// and prints how good it is. Reads the trace's files and writes the schedule; the rest is the policy room's.

#ifndef SPILLWAY_INTEGRATION_CLI_SIMULATE_H_
#define SPILLWAY_INTEGRATION_CLI_SIMULATE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integration/cli/simulate_report.h"
#include "policy/trace/workload.h"

namespace spillway::integration {

// The options as given; sizes and rates are texts such as 40GiB, 128GB, 15.754e9.
struct SimulateOptions {
  std::string trace;  // what ReadTrace accepts
  std::string gpu_memory = "40GiB", host_memory = "128GiB";
  std::string pcie, pcie_in, pcie_out;  // the latter two win over the first
  std::string ssd_read = "3.2e9", ssd_write = "3.2e9";
  bool ssd_shared = false;
  double latency_us = 0;
  std::string piece = "2MiB";
  std::string policy = "plan";
  std::string bound = "quick";  // quick, lp or lp-one-tier
  uint32_t iterations = 6;
  double noise = 0;
  uint64_t seed = 1;
  std::string schedule;  // file to write; empty: none
  std::string convert;   // file (or folder, when it ends in /) to write the trace to in the other form
  std::vector<std::string> sweep;
  std::string html;
  bool json = false;

  std::string PcieIn() const { return pcie_in.empty() ? Pcie() : pcie_in; }
  std::string PcieOut() const { return pcie_out.empty() ? Pcie() : pcie_out; }

 private:
  std::string Pcie() const { return pcie.empty() ? "15.754e9" : pcie; }
};

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddSimulate(CLI::App* app, SimulateOptions* options);

// Returns the exit status: 0; 1 when the workload cannot run on that machine; 2 for wrong use or an unreadable file.
int Simulate(const SimulateOptions& options);

// One machine, without printing anything. ResourceExhausted: the workload cannot run there; InvalidArgument: an option.
absl::StatusOr<SimulateResult> RunOne(const SimulateOptions& options, const policy::Workload& workload);

// A rate in bytes per second. InvalidArgument with the option's name and what is accepted.
absl::Status ReadRate(absl::string_view option, const std::string& text, double* value);

// "40GiB", "128GB", "15.754e9" as a number of bytes (or bytes per second); positive or 0.
absl::StatusOr<double> ParseQuantity(const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_SIMULATE_H_
