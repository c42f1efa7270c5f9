#include "integration/cli/estimate/estimate_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "integration/cli/common/quantities.h"
#include "integration/cli/common/trace_files.h"
#include "integration/cli/common/units.h"
#include "integration/cli/estimate/model_config.h"
#include "integration/cli/estimate/smallest_budget.h"

namespace spillway::integration {
namespace {

using policy::Bytes;

constexpr Bytes kChunk = 2 << 20;
constexpr Bytes kMaxMemory = Bytes{1} << 50;
constexpr uint64_t kMaxCount = uint64_t{1} << 32;
constexpr double kGoodPart = 0.95;  // of the uncapped speed
constexpr char kDefaultDisk[] = "3.2e9";

absl::Status ReadCount(absl::string_view option, const std::string& text, uint64_t least, uint64_t* value) {
  if (absl::SimpleAtoi(text, value) && *value >= least && *value <= kMaxCount) return absl::OkStatus();
  return NotAccepted(option, text, absl::StrCat("an integer, ", least, " to ", kMaxCount));
}

absl::Status ReadMemory(absl::string_view option, const std::string& text, Bytes least, Bytes* value) {
  if (absl::Status status = ReadSize(option, text, value); !status.ok()) return status;
  if (*value >= least && *value <= kMaxMemory) return absl::OkStatus();
  return NotAccepted(option, text, absl::StrCat(least, " to ", kMaxMemory, " bytes, for example 40GiB"));
}

// Reads "none", or "READ[,WRITE][:SIZE]".
absl::Status ReadDisk(const std::string& text, Estimate* estimate) {
  estimate->disk_bytes = 0;
  if (text == "none") {
    estimate->ssd_read = estimate->ssd_write = 0;
    return absl::OkStatus();
  }
  const std::vector<std::string> sides = absl::StrSplit(text, ':');
  const std::vector<std::string> rates = absl::StrSplit(sides[0], ',');
  estimate->disk_bytes = kMaxMemory;
  if (sides.size() <= 2 && rates.size() <= 2 && ReadRate("disk", rates[0], &estimate->ssd_read).ok() &&
      ReadRate("disk", rates.back(), &estimate->ssd_write).ok() &&
      (sides.size() == 1 || ReadMemory("disk", sides[1], 0, &estimate->disk_bytes).ok()))
    return absl::OkStatus();
  return NotAccepted("disk", text, "none, or READ[,WRITE][:SIZE], for example 6GB/s,4GB/s:2TB");
}

absl::StatusOr<policy::ModelShape> ReadModel(const std::string& model) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(model, ignored);
  if (!folder && !std::filesystem::exists(model, ignored)) {
    auto named = policy::NamedShape(model);
    if (named.ok()) return named;
    // ORGANISATION/NAME is the form of a model's name on the Hub.
    const bool of_the_hub =
        std::ranges::count(model, '/') == 1 && model.front() != '/' && model.back() != '/';
    const std::string hint = of_the_hub ? absl::StrCat(". Spillway downloads nothing: `hf download ", model,
                                                       " config.json` prints the path of a file to pass")
                                        : "";
    return absl::NotFoundError(absl::StrCat(
        "MODEL=", model, " is invalid: no such file, and no name; expected: ",
        "a Hugging Face config.json, a folder with one, or one of ", policy::ShapeNames(), hint));
  }
  const std::string path = folder ? model + "/config.json" : model;
  const auto text = ReadFile(path);
  if (!text.ok()) return text.status();
  auto shape = ParseModelConfig(*text);
  if (shape.ok()) return shape;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", shape.status().message()));
}

absl::Status ReadMachine(const EstimateOptions& options, Estimate* estimate) {
  if (options.machine.empty()) {
    auto named = NamedMachine(options.gpu);
    if (!named.ok()) return named.status();
    estimate->machine = *std::move(named);
  } else {
    const auto text = ReadFile(options.machine);
    if (!text.ok()) return text.status();
    auto parsed = ParseMachine(*text);
    if (!parsed.ok())
      return absl::InvalidArgumentError(absl::StrCat(options.machine, ": ", parsed.status().message()));
    estimate->machine = *std::move(parsed);
  }
  if (!options.disk.empty() || estimate->machine.ssd_read == 0)
    return ReadDisk(options.disk.empty() ? kDefaultDisk : options.disk, estimate);
  estimate->ssd_read = estimate->machine.ssd_read;
  estimate->ssd_write = estimate->machine.ssd_write;
  estimate->disk_bytes = kMaxMemory;
  return absl::OkStatus();
}

absl::Status ReadTraining(const EstimateOptions& options, Estimate* estimate) {
  policy::TrainingOptions& training = estimate->training;
  training.shape = estimate->shape;
  for (const absl::Status& status :
       {ReadCount("batch", options.batch, 1, &training.batch.sequences),
        ReadCount("sequence", options.sequence, 1, &training.batch.tokens),
        ReadCount("target", options.target.empty() ? options.sequence : options.target, 1,
                  &training.batch.targets),
        ReadCount("accumulate", options.accumulate, 1, &training.micro_batches),
        ReadCount("lora", options.lora, 0, &training.adapters.rank)}) {
    if (!status.ok()) return status;
  }
  auto optimizer = policy::ParseOptimizer(options.optimizer);
  if (!optimizer.ok()) return optimizer.status();
  training.optimizer = *optimizer;
  training.precision = options.dtype == "fp32"   ? policy::Precision::kFp32
                       : options.dtype == "bf16" ? policy::Precision::kBf16
                                                 : policy::Precision::kAutocast;
  training.batch.form = options.attention == "math"    ? policy::AttentionForm::kMath
                        : options.attention == "flash" ? policy::AttentionForm::kFlash
                                                       : policy::AttentionForm::kSdpa;
  training.batch.checkpointing = options.checkpointing;
  training.adapters.dropout = options.lora_dropout;
  training.clip = options.clip;
  training.zero = options.zero_grad == "after-update" ? policy::ZeroGradients::kAfterUpdate
                                                      : policy::ZeroGradients::kBeforeBackward;
  training.workspace = estimate->machine.workspace;
  return absl::OkStatus();
}

// A small workspace lies among the small blocks, which are not counted in chunks.
Bytes WorkspaceChunks(const Estimate& estimate) {
  if (estimate.training.workspace <= policy::kSmallBlock) return 0;
  return (estimate.training.workspace + kChunk - 1) / kChunk * kChunk;
}

// Returns the most bytes of the blocks that may move.
Bytes PeakOfBlocks(const Estimate& estimate) { return estimate.tape.peak_chunks - WorkspaceChunks(estimate); }

// Returns the simulator's options for a budget that the job fits into.
SimulateOptions SimulationOf(const Estimate& estimate, const EstimateFit& fit, Bytes host_bytes) {
  SimulateOptions options;
  // The planner counts on a sixteenth less once anything moves (docs/planner.md, at run time).
  const Bytes counted = fit.everything ? fit.blocks : std::max(fit.launch, fit.blocks - fit.blocks / 16);
  options.gpu_memory = absl::StrCat(counted);
  options.host_memory = absl::StrCat(host_bytes);
  options.pcie_in = absl::StrFormat("%.0f", estimate.machine.pcie_in);
  options.pcie_out = absl::StrFormat("%.0f", estimate.machine.pcie_out);
  options.pcie_both = estimate.machine.pcie_both;
  options.ssd_read = absl::StrFormat("%.0f", std::max(1e6, estimate.ssd_read));
  options.ssd_write = absl::StrFormat("%.0f", std::max(1e6, estimate.ssd_write));
  options.piece = "0";
  return options;
}

// Simulates the job with one end of the machine's range.
absl::StatusOr<SimulateResult> RunAt(const Estimate& estimate, const policy::Workload& workload,
                                     const EstimateFit& fit, Bytes host_bytes) {
  SimulateOptions options = SimulationOf(estimate, fit, host_bytes);
  if (fit.everything) options.policy = "none";
  return RunOne(options, workload);
}

// Returns the ends of the machine's range that are asked for.
std::vector<End> EndsOf(const EstimateOptions& options) {
  if (options.kernel_efficiency == "both") return {End::kSlow, End::kFast};
  return {EndOf(options, End::kSlow)};
}

// Returns whether a budget gives 95 % of the uncapped speed with the times of one end.
bool Good(const Estimate& estimate, const policy::Workload& workload, Bytes budget) {
  const EstimateFit fit = FitOf(estimate, budget, estimate.host_bytes);
  if (!fit.problem.empty()) return false;
  if (fit.everything) return true;
  const auto run = RunAt(estimate, workload, fit, estimate.host_bytes);
  return run.ok() && run->execution.PercentOfIdeal() >= 100 * kGoodPart;
}

// Searches by halving, to a sixty-fourth of the peak; the speed is assumed to grow with the budget.
Bytes FindSmallest(const Estimate& estimate, const std::vector<policy::Workload>& workloads,
                   Workers* workers) {
  BudgetRange range;
  range.unit = range.high = kChunk;
  while (!FitOf(estimate, range.high, estimate.host_bytes).everything) range.high += range.high;
  range.near = std::max(kChunk, estimate.tape.peak_chunks / 64);
  return SmallestBudget(
      range, workloads.size(),
      [&](Bytes budget, size_t end) { return Good(estimate, workloads[end], budget); }, workers);
}

std::string Shortfall(const char* what, Bytes needed, Bytes there) {
  return absl::StrFormat("%s: %.2f GiB needed, %.2f GiB available, %.2f GiB missing", what,
                         static_cast<double>(needed) / kGiB, static_cast<double>(there) / kGiB,
                         static_cast<double>(needed - there) / kGiB);
}

}  // namespace

End EndOf(const EstimateOptions& options, End otherwise) {
  if (options.kernel_efficiency == "both") return otherwise;
  return options.kernel_efficiency == "high" ? End::kFast : End::kSlow;
}

policy::Workload WithTimes(const policy::TapeResult& tape, const EstimateMachine& machine, End which) {
  policy::Workload workload = tape.workload;
  const auto end = [which](Range range) { return which == End::kFast ? range.high : range.low; };
  for (size_t k = 0; k < workload.kernels.size(); ++k) {
    const policy::LaunchCost& cost = tape.costs[k];
    const double rate = end(cost.half ? machine.matmul_bf16 : machine.matmul_fp32);
    const double seconds =
        std::max({cost.operations / rate, cost.bytes / end(machine.memory), end(machine.launch_us) / 1e6});
    workload.kernels[k].duration = std::max<policy::Nanos>(2, std::llround(seconds * 1e9));
  }
  return workload;
}

EstimateFit FitOf(const Estimate& estimate, Bytes budget, Bytes host_bytes) {
  EstimateFit fit;
  fit.budget = budget;
  // External memory has 2 % of the budget, 16 MiB at least (docs/design.md, accounting).
  fit.small = estimate.tape.small_bytes + WorkspaceChunks(estimate) + std::max<Bytes>(16 << 20, budget / 50);
  fit.blocks = budget > fit.small ? (budget - fit.small) / kChunk * kChunk : 0;
  Bytes largest = 0;
  for (const policy::WorkloadTensor& tensor : estimate.tape.workload.tensors)
    largest = std::max(largest, tensor.bytes);
  for (const policy::WorkloadKernel& kernel : estimate.tape.workload.kernels) {
    Bytes bytes = 0;
    for (uint32_t t : kernel.inputs) bytes += estimate.tape.workload.tensors[t].bytes;
    for (uint32_t t : kernel.outputs)
      bytes += policy::Names(kernel.inputs, t) ? 0 : estimate.tape.workload.tensors[t].bytes;
    if (bytes <= fit.launch) continue;
    fit.launch = bytes;
    fit.launch_name = kernel.name;
  }
  fit.off_gpu = host_bytes + estimate.disk_bytes;
  const Bytes peak = PeakOfBlocks(estimate);
  fit.everything = peak <= fit.blocks;
  if (fit.everything) return fit;
  // The charge (docs/design.md, accounting) is live blocks, the largest launch and the largest block.
  const Bytes all = peak + fit.launch + largest;
  fit.beyond = all > fit.blocks ? all - fit.blocks : 0;
  if (fit.launch > fit.blocks) {
    fit.problem = Shortfall(absl::StrCat("GPU memory, for the blocks of the largest launch (",
                                         fit.launch_name, ") and ", fit.small >> 20, " MiB that never move")
                                .c_str(),
                            fit.launch + fit.small, budget);
  } else if (fit.beyond > fit.off_gpu) {
    fit.problem = Shortfall("host memory and disk, for what does not fit the GPU", fit.beyond, fit.off_gpu);
  }
  return fit;
}

absl::StatusOr<Estimate> MakeEstimate(const EstimateOptions& options, Workers* workers) {
  Estimate estimate;
  auto shape = ReadModel(options.model);
  if (!shape.ok()) return shape.status();
  estimate.shape = *shape;
  if (absl::Status status = ReadMachine(options, &estimate); !status.ok()) return status;
  if (absl::Status status = ReadTraining(options, &estimate); !status.ok()) return status;
  Bytes budget = estimate.machine.gpu_memory;
  if (!options.gpu_memory.empty()) {
    if (absl::Status status = ReadMemory("gpu-memory", options.gpu_memory, 1, &budget); !status.ok())
      return status;
  }
  if (absl::Status status = ReadMemory("host-memory", options.host_memory, 0, &estimate.host_bytes);
      !status.ok())
    return status;
  auto tape = policy::EstimateIteration(estimate.training);
  if (!tape.ok()) return tape.status();
  estimate.tape = *std::move(tape);
  estimate.fit = FitOf(estimate, budget, estimate.host_bytes);
  const std::vector<End> ends = EndsOf(options);
  std::vector<policy::Workload> workloads(ends.size());
  estimate.times.resize(ends.size());
  const absl::Status simulated = workers->TryForEach("simulating", ends.size(), [&](size_t i) {
    workloads[i] = WithTimes(estimate.tape, estimate.machine, ends[i]);
    EstimateTime& time = estimate.times[i];
    time.efficiency = ends[i] == End::kFast ? "high" : "low";
    time.uncapped = workloads[i].IdealTime();
    if (!estimate.fit.problem.empty()) return absl::OkStatus();
    auto run = RunAt(estimate, workloads[i], estimate.fit, estimate.host_bytes);
    if (run.ok()) time.run = *std::move(run);
    return run.status();
  });
  if (!simulated.ok()) return simulated;
  if (options.smallest) estimate.smallest = FindSmallest(estimate, workloads, workers);
  return estimate;
}

std::vector<SweepRow> SweepEstimate(const Estimate& estimate, End end, Workers* workers,
                                    SimulateOptions* shown) {
  constexpr size_t kBudgets = 8;
  const policy::Workload workload = WithTimes(estimate.tape, estimate.machine, end);
  const Bytes whole =
      std::max<Bytes>(estimate.tape.peak_chunks + estimate.tape.small_bytes, kBudgets * kChunk) * 21 / 20;
  *shown = SimulationOf(estimate, estimate.fit, estimate.host_bytes);
  const Bytes hosts[] = {0, estimate.host_bytes / 2, estimate.host_bytes};
  std::vector<SweepRow> rows(kBudgets * std::size(hosts));
  workers->ForEach("simulating", rows.size(), [&](size_t i) {
    SweepRow& row = rows[i];
    row.sweep = i / kBudgets;
    const Bytes host = hosts[row.sweep];
    row.option = absl::StrFormat("host-memory=%.1fGiB gpu-memory", static_cast<double>(host) / kGiB);
    row.value = static_cast<double>(whole / kBudgets * (i % kBudgets + 1) / kChunk * kChunk);
    row.value_text = absl::StrFormat("%.2fGiB", row.value / kGiB);
    const EstimateFit fit = FitOf(estimate, static_cast<Bytes>(row.value), host);
    row.problem = fit.problem;
    if (!row.problem.empty()) return;
    auto run = RunAt(estimate, workload, fit, host);
    if (run.ok()) row.result = *std::move(run);
    if (!run.ok()) row.problem = std::string(run.status().message());
    row.result.execution.read_waits.clear();
  });
  return rows;
}

}  // namespace spillway::integration
