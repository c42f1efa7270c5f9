// trace_replay: plans an iteration of a published trace as at run time, carries the plan out by PlanCursor's rules in
// virtual time, and prints what percent of the kernels' own time that is. traces.py runs it.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "nlohmann/json.hpp"
#include "policy/offline/workload_csv.h"
#include "policy/planner/runtime_planner.h"
#include "tests/command_line.h"
#include "tests/policy/planner/plan_replay.h"

namespace {

using namespace spillway::policy;  // NOLINT: a program of policy's alone

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// As it would have been recorded: the second of three iterations, each tensor a block of its own, every kernel a
// function of its own whose times and, with `writes_known`, writes are known.
RecordedWorkload Recorded(const Workload& workload, bool writes_known) {
  const auto size = static_cast<uint32_t>(workload.kernels.size());
  const Lifetimes lifetimes = FindLifetimes(workload);
  std::vector<std::vector<TraceBlock>> born(size), dies(size);
  BlockSizes sizes;
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    const WorkloadTensor& tensor = workload.tensors[t];
    if (lifetimes.uses[t].empty()) continue;
    sizes[TraceBlock{t}] = tensor.bytes;
    if (tensor.persistent) continue;
    const TensorLife life =
        tensor.life.value_or(TensorLife{lifetimes.uses[t].front(), lifetimes.uses[t].back()});
    born[life.first].push_back(TraceBlock{t});
    dies[(life.last + 1) % size].push_back(TraceBlock{t});
  }
  Trace trace;
  WriteFacts facts;
  for (uint32_t iteration = 0; iteration < 3; ++iteration) {
    for (uint32_t k = 0; k < size; ++k) {
      for (const TraceBlock block : dies[k]) trace.AddFree(block);
      for (const TraceBlock block : born[k]) trace.AddAllocate(block, sizes[block]);
      const WorkloadKernel& kernel = workload.kernels[k];
      std::vector<TraceBlock> blocks;
      for (const uint32_t t : kernel.outputs) blocks.push_back(TraceBlock{t});
      const size_t written = blocks.size();
      for (const uint32_t t : kernel.inputs) {
        if (!Names(kernel.outputs, t)) blocks.push_back(TraceBlock{t});
      }
      const LaunchForm form{k + 1, static_cast<uint32_t>(blocks.size())};
      for (size_t operand = written; operand < blocks.size(); ++operand) {
        for (uint32_t look = 0; look < WriteFacts::kLooksForNo; ++look)
          facts.Note(form, static_cast<uint32_t>(operand), false);
      }
      trace.AddLaunch(k + 1, blocks);
    }
  }
  KernelTimes times;
  for (uint32_t k = 0; k < size; ++k)
    times.Add(KindAt(trace, size + k, size + (k + 1) % size, sizes), workload.kernels[k].duration);
  return MakeRecordedWorkload(trace, size, size, sizes, &times, writes_known ? &facts : nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder;
  double gpu = 40, host = 0, pcie = 15.754e9, ssd = 3.2e9;
  spillway::CommandLine line("Carries out a plan for a published trace in virtual time");
  line.Add("--trace", &folder, "folder of kernels.csv and tensors.csv");
  line.Add("--gpu-memory", &gpu, "GiB", 0.001, 1e6);
  line.Add("--host-memory", &host, "GiB", 0, 1e6);
  line.Add("--pcie", &pcie, "bytes a second in each direction", 1, 1e15);
  line.Add("--ssd", &ssd, "bytes a second in each direction", 1, 1e15);
  bool steady = false;
  line.Add("--steady", &steady, "the job has repeated the iteration for long");
  bool unknown = false;
  line.Add("--writes-unknown", &unknown, "no access is known to read only, as in a job's first iterations");
  line.Parse(argc, argv);
  const absl::StatusOr<Workload> workload =
      ParseCsvWorkload(Contents(folder + "/kernels.csv"), Contents(folder + "/tensors.csv"));
  if (!workload.ok()) {
    std::fprintf(stderr, "trace_replay: %s: %s\n", folder.c_str(),
                 std::string(workload.status().message()).c_str());
    return 1;
  }
  constexpr double kGiB = 1 << 30;
  ReplayOptions options;
  options.machine.gpu_bytes = static_cast<Bytes>(gpu * kGiB);
  options.machine.host_bytes = static_cast<Bytes>(host * kGiB);
  options.machine.pcie_in = options.machine.pcie_out = pcie;
  options.machine.ssd_read = options.machine.ssd_write = ssd;
  const RecordedWorkload recorded = Recorded(*workload, !unknown);
  RuntimeMachine machine;
  machine.machine = options.machine;
  machine.run_ahead = RunAhead();
  if (steady) machine = WhenSteady(machine);
  RuntimePlanner planner(recorded, machine);
  while (planner.Improve()) {
  }
  const auto plan = planner.Plan();
  const Replay replay = ReplayPlan(recorded, plan.get(), options);
  const auto percent = [&](Nanos time) {
    return 100 * static_cast<double>(recorded.workload.IdealTime()) / static_cast<double>(time);
  };
  const nlohmann::json json = {{"planned", plan != nullptr},
                               {"stuck", replay.stuck},
                               {"replay_percent", percent(replay.iteration)},
                               {"forecast_percent", percent(planner.forecast().iteration)},
                               {"bound_percent", percent(planner.forecast().bound)},
                               {"faults", replay.faults},
                               {"evicted_in_need", replay.in_need}};
  std::printf("%s\n", json.dump().c_str());
  return 0;
}
