// What planning at run time costs: processor seconds to the first plan and for each trial, and what the best
// plan is forecast to bring, on iterations made from a model's shapes with ever more micro-batches.
//
//   plan_bench [--most KERNELS] [--gpu-memory BYTES] [--json FILE]

#include <ctime>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "policy/offline/model_workload.h"
#include "policy/planner/runtime_planner.h"
#include "tests/command_line.h"

namespace spillway::bench {
namespace {

double ProcessSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// As if recorded: each tensor a block of its own, freed after its last use.
policy::RecordedWorkload Recorded(uint32_t micro_batches) {
  policy::ModelOptions model = *policy::ParseModel("llama3-70b");
  model.micro_batches = micro_batches;
  policy::RecordedWorkload recorded;
  recorded.workload = policy::MakeModelWorkload(model);
  const policy::Lifetimes lifetimes = policy::FindLifetimes(recorded.workload);
  for (uint32_t t = 0; t < recorded.workload.tensors.size(); ++t) {
    policy::WorkloadTensor& tensor = recorded.workload.tensors[t];
    if (!tensor.persistent && !lifetimes.uses[t].empty())
      tensor.life = {lifetimes.uses[t].front(), lifetimes.uses[t].back()};
    recorded.blocks.push_back(t);
  }
  return recorded;
}

nlohmann::json Measure(uint32_t micro_batches, double gpu_bytes) {
  policy::RecordedWorkload recorded = Recorded(micro_batches);
  const size_t kernels = recorded.workload.kernels.size();
  policy::RuntimeMachine machine;
  machine.machine.gpu_bytes = static_cast<policy::Bytes>(gpu_bytes);
  machine.machine.host_bytes = 1'024'000'000'000;
  machine.machine.pcie_in = machine.machine.pcie_out = 50e9;
  machine.machine.ssd_read = machine.machine.ssd_write = 16e9;
  machine.run_ahead = policy::RunAhead();
  const double start = ProcessSeconds();
  policy::RuntimePlanner planner(std::move(recorded), machine);
  const double first = ProcessSeconds();
  double longest = 0;
  int trials = 0;
  for (double before = first; planner.Improve(); before = ProcessSeconds(), ++trials)
    longest = std::max(longest, ProcessSeconds() - before);
  const policy::Forecast forecast = planner.forecast();
  return {{"kernels", kernels},
          {"first_s", first - start},
          {"all_s", ProcessSeconds() - start},
          {"longest_trial_s", longest},
          {"trials", trials},
          {"percent_of_ideal",
           100 * static_cast<double>(forecast.ideal) / static_cast<double>(forecast.iteration)}};
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  std::string json_file;
  int most = 60'000;
  double gpu_bytes = 94e9;
  spillway::CommandLine line{"Time of planning as at run time"};
  line.Add("--most", &most, "kernels of the largest case");
  line.Add("--gpu-memory", &gpu_bytes, "bytes", 1e9, 1e15);
  line.Add("--json", &json_file, "write the figures here");
  line.Parse(argc, argv);
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%8s %9s %9s %15s %7s %10s\n", "kernels", "first, s", "all, s", "longest trial, s", "trials",
              "% of ideal");
  for (const uint32_t micro_batches : {1, 2, 4, 23}) {
    if (micro_batches * 2'600 > static_cast<uint32_t>(most)) continue;
    const nlohmann::json row = spillway::bench::Measure(micro_batches, gpu_bytes);
    std::printf("%8d %9.3f %9.3f %15.3f %7d %10.2f\n", row["kernels"].get<int>(),
                row["first_s"].get<double>(), row["all_s"].get<double>(),
                row["longest_trial_s"].get<double>(), row["trials"].get<int>(),
                row["percent_of_ideal"].get<double>());
    rows.push_back(row);
  }
  if (!json_file.empty()) std::ofstream(json_file) << rows.dump(1) << "\n";
  return 0;
}
