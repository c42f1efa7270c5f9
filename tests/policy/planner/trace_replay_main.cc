// trace_replay: plans an iteration of a published trace as at run time, carries the plan out by PlanCursor's
// rules in virtual time (BlockMachine), and prints what percent of the kernels' own time that is; with
// --schedule, the moves, for the referee. traces.py runs it.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "nlohmann/json.hpp"
#include "policy/offline/schedule_csv.h"
#include "policy/offline/workload_csv.h"
#include "policy/planner/runtime_planner.h"
#include "policy/simulator/block_machine.h"
#include "tests/command_line.h"

namespace {

using namespace spillway::policy;  // NOLINT: a program of policy's alone

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The workload as it would have been recorded: the second of three iterations, each tensor a block of its
// own, every kernel a function of its own whose times and, with `writes_known`, writes are known.
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
        for (uint32_t look = 0; look < WriteFacts::kSamplesForNo; ++look)
          facts.Record(form, static_cast<uint32_t>(operand), false);
      }
      trace.AddLaunch(k + 1, blocks);
    }
  }
  KernelTimes times;
  for (uint32_t k = 0; k < size; ++k)
    times.Add(KindAt(trace, size + k, size + (k + 1) % size, sizes), workload.kernels[k].duration);
  return MakeRecordedWorkload(trace, size, size, sizes, &times, writes_known ? &facts : nullptr);
}

// Prints tensors by their number in the trace.
bool WriteSchedule(const std::string& path, const RecordedWorkload& recorded, Execution* run) {
  for (ScheduleEvent& event : run->events) {
    if (event.kind != ScheduleEvent::Kind::kKernel)
      event.id = static_cast<uint32_t>(recorded.blocks[event.id]);
  }
  std::ofstream file(path);
  file << ScheduleCsv(*run);
  return static_cast<bool>(file.flush());
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
  std::string schedule;
  line.Add("--schedule", &schedule, "write what moved when to this file");
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
  Machine of_job;
  of_job.gpu_bytes = static_cast<Bytes>(gpu * kGiB);
  of_job.host_bytes = static_cast<Bytes>(host * kGiB);
  of_job.pcie_in = of_job.pcie_out = pcie;
  of_job.ssd_read = of_job.ssd_write = ssd;
  const RecordedWorkload recorded = Recorded(*workload, !unknown);
  RuntimeMachine machine;
  machine.machine = of_job;
  machine.run_ahead = RunAhead();
  if (steady) machine = WhenSteady(machine);
  RuntimePlanner planner(recorded, machine);
  while (planner.Improve()) {
  }
  const auto plan = planner.Plan();
  const Lifetimes lifetimes = FindLifetimes(recorded.workload);
  const ExecutionOptions options = {.iterations = 12, .record = !schedule.empty()};
  absl::StatusOr<Execution> run = BlockMachine(recorded, lifetimes).Run(of_job, plan, options);
  if (!run.ok()) {
    std::fprintf(stderr, "trace_replay: %s\n", std::string(run.status().message()).c_str());
    return 1;
  }
  if (options.record && !WriteSchedule(schedule, recorded, &*run)) {
    std::fprintf(stderr, "trace_replay: %s cannot be written\n", schedule.c_str());
    return 1;
  }
  const auto percent = [&](Nanos time) {
    return 100 * static_cast<double>(recorded.workload.IdealTime()) / static_cast<double>(time);
  };
  const nlohmann::json json = {{"planned", plan != nullptr},
                               {"replay_percent", percent(run->iteration)},
                               {"forecast_percent", percent(planner.forecast().iteration)},
                               {"bound_percent", percent(planner.forecast().bound)},
                               {"iteration_us", static_cast<double>(run->iteration) / 1e3},
                               {"evicted_in_need", run->evictions_in_need}};
  std::printf("%s\n", json.dump().c_str());
  return 0;
}
