#include "integration/cli/simulate.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "integration/cli/simulate_report.h"
#include "integration/cli/trace_files.h"
#include "policy/lp_bound.h"
#include "policy/lp_plan.h"
#include "policy/plan_search.h"
#include "policy/schedule_csv.h"
#include "policy/transfer_choice.h"

namespace spillway::integration {
namespace {

constexpr int kCannotRun = 1;
constexpr int kWrongUse = 2;
constexpr uint32_t kLeastIterations = 4;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "spillway: %s\n", std::string(status.message()).c_str());
  return absl::IsResourceExhausted(status) ? kCannotRun : kWrongUse;
}

// CPU time of the process, which plans in one thread.
double CpuSeconds() { return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC); }

absl::StatusOr<policy::Machine> MachineOf(const SimulateOptions& options) {
  policy::Machine machine;
  const std::string pcie = options.pcie.empty() ? "15.754e9" : options.pcie;
  const auto bytes = [](const std::string& text, policy::Bytes* value) {
    auto parsed = ParseQuantity(text);
    if (parsed.ok()) *value = static_cast<policy::Bytes>(*parsed);
    return parsed.status();
  };
  const auto rate = [](const std::string& text, double* value) {
    auto parsed = ParseQuantity(text);
    if (parsed.ok() && *parsed <= 0) return absl::InvalidArgumentError("a rate must be more than 0");
    if (parsed.ok()) *value = *parsed;
    return parsed.status();
  };
  for (const absl::Status& status : {
           bytes(options.gpu_memory, &machine.gpu_bytes),
           bytes(options.host_memory, &machine.host_bytes),
           bytes(options.piece, &machine.piece_bytes),
           rate(options.pcie_in.empty() ? pcie : options.pcie_in, &machine.pcie_in),
           rate(options.pcie_out.empty() ? pcie : options.pcie_out, &machine.pcie_out),
           rate(options.ssd_read, &machine.ssd_read),
           rate(options.ssd_write, &machine.ssd_write),
       }) {
    if (!status.ok()) return status;
  }
  machine.ssd_shared = options.ssd_shared;
  machine.transfer_latency = std::llround(options.latency_us * 1000);
  return machine;
}

// Each kernel of each iteration lasts up to `noise` of its time more or less.
std::vector<policy::Nanos> NoisyDurations(const policy::Workload& workload, const SimulateOptions& options) {
  std::vector<policy::Nanos> durations;
  if (options.noise == 0) return durations;
  std::mt19937_64 random(options.seed);
  for (uint32_t i = 0; i < options.iterations; ++i) {
    for (const policy::WorkloadKernel& kernel : workload.kernels) {
      const double part = static_cast<double>(random() >> 11) * 0x1p-53;  // the same on every machine
      durations.push_back(
          std::llround(static_cast<double>(kernel.duration) * (1 + options.noise * (2 * part - 1))));
    }
  }
  return durations;
}

// The plan of a policy; lru has none and moves on demand.
absl::StatusOr<policy::TransferPlan> PlanFor(const SimulateOptions& options, const policy::Workload& workload,
                                             const policy::Lifetimes& lifetimes,
                                             const policy::Machine& machine, SimulateResult* result) {
  const double begin = CpuSeconds();
  policy::TransferPlan plan;
  for (const policy::WorkloadKernel& kernel : workload.kernels) plan.kernel_times.push_back(kernel.duration);
  if (options.policy == "plan") {
    policy::SearchOptions search;
    search.bound = result->quick_bound.Best();
    policy::PlanSearch planner(workload, lifetimes, machine, search);
    plan = planner.First();
    result->plan_first_s = CpuSeconds() - begin;
    for (;;) {
      auto more = planner.Improve();
      if (!more.ok()) return more.status();
      if (!*more) break;
    }
    result->trials = planner.trials();
    plan = planner.best();
  } else if (options.policy == "belady" || options.policy == "g10") {
    policy::ChoiceOptions choice;
    choice.budget_bytes = machine.gpu_bytes;
    choice.piece_bytes = machine.piece_bytes;
    choice.write_rate = machine.pcie_out;
    choice.write_ledger = false;
    choice.early_writes = false;
    plan.early_writes = false;
    plan.absences = options.policy == "g10"
                        ? policy::ChooseByBenefit(workload, lifetimes, plan.kernel_times, choice)
                        : policy::ChooseTransfers(workload, lifetimes, plan.kernel_times, choice);
    policy::ChooseTiers(workload, lifetimes, machine, policy::TierOrder::kFarthestFirst, &plan);
    result->plan_first_s = CpuSeconds() - begin;
  } else if (options.policy == "lp") {
    auto rounded = policy::PlanByLp(workload, lifetimes, machine);
    if (!rounded.ok()) return rounded.status();
    plan = *std::move(rounded);
    result->plan_first_s = CpuSeconds() - begin;
  }
  result->plan_best_s = CpuSeconds() - begin;
  return plan;
}

// Which bound the percentage is of. The LP's takes tensors of all sizes into account.
absl::Status FindBound(const SimulateOptions& options, const policy::Workload& workload,
                       const policy::Lifetimes& lifetimes, const policy::Machine& machine,
                       SimulateResult* result) {
  const double begin = CpuSeconds();
  result->bound_kind = options.bound;
  result->quick_bound = policy::FindQuickBound(workload, lifetimes, machine);
  result->bound = result->quick_bound.Best();
  if (options.bound != "quick") {
    const auto form = options.bound == "lp" ? policy::LpForm::kAnyPlan : policy::LpForm::kKeepTier;
    auto found = policy::FindLpBound(workload, policy::FindLifetimes(workload), machine, form);
    if (!found.ok()) return found.status();
    result->bound = std::max(result->bound, found->iteration);
  }
  result->bound_s = CpuSeconds() - begin;
  return absl::OkStatus();
}

absl::StatusOr<SimulateResult> RunOne(const SimulateOptions& options, const policy::Workload& workload) {
  auto machine = MachineOf(options);
  if (!machine.ok()) return machine.status();
  SimulateResult result;
  result.policy = options.policy;
  const policy::Lifetimes lifetimes =
      policy::FindLifetimes(workload, policy::PlanSearch::LeastBytes(*machine));
  result.peak_live_bytes = lifetimes.PeakLive();
  if (options.policy == "none" && result.peak_live_bytes > static_cast<int64_t>(machine->gpu_bytes))
    return absl::ResourceExhaustedError(absl::StrCat("without moving anything the job needs ",
                                                     result.peak_live_bytes, " bytes; the GPU has ",
                                                     machine->gpu_bytes));
  if (absl::Status status = FindBound(options, workload, lifetimes, *machine, &result); !status.ok())
    return status;
  auto plan = PlanFor(options, workload, lifetimes, *machine, &result);
  if (!plan.ok()) return plan.status();
  policy::ExecutionOptions execution;
  execution.iterations = options.iterations;
  execution.durations = NoisyDurations(workload, options);
  execution.record = !options.schedule.empty();
  if (options.policy == "lru") {
    execution.prefetch = false;
    execution.victim = policy::Victim::kLeastRecentlyUsed;
  }
  auto run = policy::Execute(workload, lifetimes, *machine, *plan, execution);
  if (!run.ok()) return run.status();
  result.execution = *std::move(run);
  return result;
}

// "gpu-memory=16GiB:80GiB:8GiB": the option's name and the values in turn.
struct Sweep {
  std::string SimulateOptions::*field = nullptr;
  std::string name;
  double first = 0, last = 0, step = 0;
};

absl::StatusOr<Sweep> ParseSweep(const std::string& text) {
  const std::vector<std::string> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::vector<std::string> values = absl::StrSplit(sides.back(), ':');
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("sweep=", text,
                   " is not accepted; accepted: gpu-memory, host-memory, pcie, ssd-read or "
                   "ssd-write, =FIRST:LAST:STEP"));
  if (sides.size() != 2 || values.size() != 3) return wrong;
  Sweep sweep;
  sweep.name = sides[0];
  sweep.field = sweep.name == "gpu-memory"    ? &SimulateOptions::gpu_memory
                : sweep.name == "host-memory" ? &SimulateOptions::host_memory
                : sweep.name == "pcie"        ? &SimulateOptions::pcie
                : sweep.name == "ssd-read"    ? &SimulateOptions::ssd_read
                : sweep.name == "ssd-write"   ? &SimulateOptions::ssd_write
                                              : nullptr;
  double* const numbers[] = {&sweep.first, &sweep.last, &sweep.step};
  for (int i = 0; i < 3; ++i) {
    auto parsed = ParseQuantity(values[i]);
    if (!parsed.ok()) return parsed.status();
    *numbers[i] = *parsed;
  }
  if (sweep.field == nullptr || sweep.step <= 0 || (sweep.last - sweep.first) / sweep.step > 1000)
    return wrong;
  return sweep;
}

std::string Readable(double value) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const double gib = value / kGiB;
  return gib == std::floor(gib) ? absl::StrCat(gib, "GiB") : absl::StrCat(value);
}

int RunSweep(const SimulateOptions& options, const policy::Workload& workload) {
  std::vector<SweepPoint> points;
  for (const std::string& text : options.sweep) {
    auto sweep = ParseSweep(text);
    if (!sweep.ok()) return Fail(sweep.status());
    for (double value = sweep->first; value <= sweep->last; value += sweep->step) {
      SimulateOptions one = options;
      one.*(sweep->field) = absl::StrCat(static_cast<uint64_t>(value));
      one.schedule.clear();
      SweepPoint point;
      point.setting = absl::StrCat(sweep->name, "=", Readable(value));
      auto result = RunOne(one, workload);
      if (!result.ok() && !absl::IsResourceExhausted(result.status())) return Fail(result.status());
      point.fits = result.ok();
      if (result.ok()) {
        constexpr double kGiB = 1024.0 * 1024 * 1024;
        const policy::Traffic& traffic = result->execution.traffic;
        point.percent_of_ideal = result->execution.PercentOfIdeal();
        point.percent_of_bound = result->PercentOfBound();
        point.gigabytes_in = (traffic.host_to_gpu + traffic.ssd_to_gpu) / kGiB;
        point.gigabytes_out = (traffic.gpu_to_host + traffic.gpu_to_ssd) / kGiB;
      }
      points.push_back(point);
    }
  }
  std::fputs(SweepText(points).c_str(), stdout);
  if (options.html.empty()) return 0;
  const absl::Status written = WriteFile(options.html, SweepHtml(points));
  return written.ok() ? 0 : Fail(written);
}

}  // namespace

absl::StatusOr<double> ParseQuantity(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (absl::EndsWith(unit, "/S")) unit.resize(unit.size() - 2);
  const char* const kUnits[] = {"", "B", "KB", "MB", "GB", "TB", "KIB", "MIB", "GIB", "TIB"};
  const double kFactors[] = {1, 1, 1e3, 1e6, 1e9, 1e12, 0x1p10, 0x1p20, 0x1p30, 0x1p40};
  for (int u = 0; u < 10; ++u) {
    if (unit != kUnits[u] || end == text.c_str() || !(number >= 0) || number * kFactors[u] > 1e18) continue;
    return number * kFactors[u];
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a size or a rate; examples: 40GiB, 128GB, 15.754e9"));
}

CLI::App* AddSimulate(CLI::App* app, SimulateOptions* options) {
  CLI::App* simulate =
      app->add_subcommand("simulate", "Plan a recorded iteration for a machine and say how good the plan is");
  simulate
      ->add_option(
          "--trace", options->trace,
          "Folder with kernels.csv and tensors.csv, a trace file, or a model as in `spillway generate`")
      ->required();
  simulate->add_option("--gpu-memory", options->gpu_memory, "Bytes (default 40GiB)");
  simulate->add_option("--host-memory", options->host_memory, "Bytes (default 128GiB)");
  simulate->add_option("--pcie", options->pcie, "Bytes/s in each direction (default 15.754e9)");
  simulate->add_option("--pcie-in", options->pcie_in, "Bytes/s to the GPU");
  simulate->add_option("--pcie-out", options->pcie_out, "Bytes/s from the GPU");
  simulate->add_option("--ssd-read", options->ssd_read, "Bytes/s (default 3.2e9)");
  simulate->add_option("--ssd-write", options->ssd_write, "Bytes/s (default 3.2e9)");
  simulate->add_flag("--ssd-shared", options->ssd_shared, "Reads and writes of the SSD share one limit");
  simulate->add_option("--latency", options->latency_us, "Microseconds added to each transfer (default 0)")
      ->check(CLI::Range(0.0, 1e6));
  simulate->add_option("--piece", options->piece,
                       "Tensors move in pieces of this size; 0: whole (default 2MiB)");
  simulate->add_option("--policy", options->policy, "plan (default), lru, belady, g10, lp or none")
      ->check(CLI::IsMember({"plan", "lru", "belady", "g10", "lp", "none"}));
  simulate->add_option("--bound", options->bound,
                       "quick (default), lp: tighter, in seconds to minutes, or lp-one-tier: of plans that change no "
                       "spilled bytes' tier")
      ->check(CLI::IsMember({"quick", "lp", "lp-one-tier"}));
  simulate->add_option("--iterations", options->iterations, "Simulated; the last two count (default 6)")
      ->check(CLI::Range(kLeastIterations, 1000u));
  simulate->add_option("--noise", options->noise, "Kernels last up to this part more or less (default 0)")
      ->check(CLI::Range(0.0, 1.0));
  simulate->add_option("--seed", options->seed, "Of the noise (default 1)");
  simulate->add_option("--schedule", options->schedule, "Write all kernels and moves to this file");
  simulate->add_option("--convert", options->convert,
                       "Write the trace as a compact file, or as CSV into a folder (a name that ends in /)");
  simulate->add_option(
      "--sweep", options->sweep,
      "gpu-memory=16GiB:80GiB:8GiB, or host-memory, pcie, ssd-read, ssd-write: a table of what-ifs");
  simulate->add_option("--html", options->html, "Write the sweep's chart to this file");
  simulate->add_flag("--json", options->json, "Print JSON");
  return simulate;
}

int Simulate(const SimulateOptions& options) {
  auto workload = ReadTrace(options.trace);
  if (!workload.ok()) return Fail(workload.status());
  if (!options.convert.empty()) {
    if (absl::Status status = WriteTrace(options.convert, *workload); !status.ok()) return Fail(status);
  }
  if (!options.sweep.empty()) return RunSweep(options, *workload);
  auto result = RunOne(options, *workload);
  if (!result.ok()) return Fail(result.status());
  if (!options.schedule.empty()) {
    const absl::Status written = WriteFile(options.schedule, policy::ScheduleCsv(result->execution));
    if (!written.ok()) return Fail(written);
  }
  std::fputs((options.json ? ReportJson(*result) : ReportText(*result)).c_str(), stdout);
  return 0;
}

}  // namespace spillway::integration
