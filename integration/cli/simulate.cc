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
#include "integration/cli/sweep.h"
#include "integration/cli/sweep_page.h"
#include "integration/cli/trace_files.h"
#include "policy/offline/benefit_choice.h"
#include "policy/offline/lp_bound.h"
#include "policy/offline/lp_plan.h"
#include "policy/offline/schedule_csv.h"
#include "policy/planner/plan_search.h"
#include "policy/planner/tier_choice.h"
#include "policy/planner/transfer_choice.h"
#include "policy/simulator/simulator.h"

namespace spillway::integration {
namespace {

constexpr int kCannotRun = 1;
constexpr int kWrongUse = 2;
constexpr uint32_t kLeastIterations = 4;
constexpr size_t kMostDrives = 64;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "spillway: %s\n", std::string(status.message()).c_str());
  return absl::IsResourceExhausted(status) ? kCannotRun : kWrongUse;
}

// CPU time of the process, which plans in one thread.
double CpuSeconds() { return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC); }

constexpr double kLeastRate = 1e6, kMostRate = 1e15;  // below, times leave the range of nanoseconds
constexpr double kLeastPiece = 4096;

absl::Status NotAccepted(absl::string_view option, absl::string_view value, absl::string_view accepted) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, "=", value, " is not accepted; accepted: ", accepted));
}

absl::Status ReadSize(absl::string_view option, const std::string& text, policy::Bytes* value) {
  const auto parsed = ParseQuantity(text);
  if (!parsed.ok() || absl::EndsWithIgnoreCase(text, "/s"))
    return NotAccepted(option, text, "bytes, for example 40GiB, 128GB, 0");
  *value = static_cast<policy::Bytes>(*parsed);
  return absl::OkStatus();
}

// "2.4e9" or, of several drives, "2.4e9,0.8e9".
absl::StatusOr<std::vector<double>> ReadRates(absl::string_view option, const std::string& text) {
  std::vector<double> rates;
  for (const std::string& one : std::vector<std::string>(absl::StrSplit(text, ','))) {
    rates.push_back(0);
    if (absl::Status status = ReadRate(option, one, &rates.back()); !status.ok()) return status;
  }
  return rates;
}

absl::Status ReadDrives(const SimulateOptions& options, policy::Machine* machine) {
  const auto reads = ReadRates("ssd-read", options.ssd_read);
  if (!reads.ok()) return reads.status();
  const auto writes = ReadRates("ssd-write", options.ssd_write);
  if (!writes.ok()) return writes.status();
  if (reads->size() != writes->size())
    return absl::InvalidArgumentError(absl::StrCat("--ssd-read=", options.ssd_read,
                                                   " and --ssd-write=", options.ssd_write,
                                                   " are not accepted: rates of ", reads->size(), " and of ",
                                                   writes->size(), " drives; accepted: one each per drive"));
  if (reads->size() > kMostDrives)
    return NotAccepted("ssd-read", options.ssd_read, absl::StrCat("at most ", kMostDrives, " drives"));
  machine->ssd_read = machine->ssd_write = 0;
  for (size_t d = 0; d < reads->size(); ++d) {
    machine->ssd_read += (*reads)[d];
    machine->ssd_write += (*writes)[d];
    if (reads->size() > 1) machine->drives.push_back({(*reads)[d], (*writes)[d]});
  }
  return absl::OkStatus();
}

absl::StatusOr<policy::Machine> MachineOf(const SimulateOptions& options) {
  policy::Machine machine;
  for (const absl::Status& status : {
           ReadSize("gpu-memory", options.gpu_memory, &machine.gpu_bytes),
           ReadSize("host-memory", options.host_memory, &machine.host_bytes),
           ReadSize("piece", options.piece, &machine.piece_bytes),
           ReadRate(options.pcie_in.empty() ? "pcie" : "pcie-in", options.PcieIn(), &machine.pcie_in),
           ReadRate(options.pcie_out.empty() ? "pcie" : "pcie-out", options.PcieOut(), &machine.pcie_out),
           ReadDrives(options, &machine),
       }) {
    if (!status.ok()) return status;
  }
  if (machine.piece_bytes != 0 && machine.piece_bytes < kLeastPiece)
    return NotAccepted("piece", options.piece, "0 (whole tensors) or at least 4KiB");
  machine.ssd_shared = options.ssd_shared;
  machine.transfer_latency = std::llround(options.latency_us * 1000);
  return machine;
}

// What the command line's library does not see.
absl::Status CheckOptions(const SimulateOptions& options) {
  if (!std::isfinite(options.latency_us)) return NotAccepted("latency", "nan", "0 to 1e6 (microseconds)");
  if (!std::isfinite(options.noise)) return NotAccepted("noise", "nan", "0 to 1");
  if (!options.html.empty() && options.sweep.empty())
    return absl::InvalidArgumentError("--html shows a sweep: give --sweep, too");
  if (!options.schedule.empty() && !options.sweep.empty())
    return absl::InvalidArgumentError("--schedule is of one machine: leave --sweep or --schedule away");
  return absl::OkStatus();
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

}  // namespace

absl::StatusOr<SimulateResult> RunOne(const SimulateOptions& options, const policy::Workload& workload) {
  auto machine = MachineOf(options);
  if (!machine.ok()) return machine.status();
  SimulateResult result;
  result.policy = options.policy;
  result.kernels = workload.kernels.size();
  result.tensors = workload.tensors.size();
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
  // With noise the bound is that of the kernels as they came.
  result.bound =
      std::max(result.bound - result.quick_bound.compute, policy::Nanos{0}) + result.execution.ideal;
  return result;
}

absl::Status ReadRate(absl::string_view option, const std::string& text, double* value) {
  const auto parsed = ParseQuantity(text);
  if (!parsed.ok() || *parsed < kLeastRate || *parsed > kMostRate)
    return NotAccepted(option, text, "bytes/s, at least 1e6, for example 15.754e9, 3.2GB/s");
  *value = *parsed;
  return absl::OkStatus();
}

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
  simulate->add_option("--ssd-read", options->ssd_read,
                       "Bytes/s (default 3.2e9); several drives: 2.4e9,0.8e9");
  simulate->add_option("--ssd-write", options->ssd_write, "Bytes/s (default 3.2e9), of as many drives");
  simulate->add_flag("--ssd-shared", options->ssd_shared, "Reads and writes of the SSD share one limit");
  simulate->add_option("--latency", options->latency_us, "Microseconds added to each transfer (default 0)")
      ->check(CLI::Range(0.0, 1e6));
  simulate->add_option("--piece", options->piece,
                       "Tensors move in pieces of this size; 0: whole (default 2MiB)");
  simulate->add_option("--policy", options->policy, "plan (default), lru, belady, g10, lp or none")
      ->check(CLI::IsMember({"plan", "lru", "belady", "g10", "lp", "none"}));
  simulate
      ->add_option(
          "--bound", options->bound,
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
  simulate->add_option("--sweep", options->sweep, absl::StrCat("A table of what-ifs: ", SweepForm()));
  simulate->add_option("--html", options->html, "Write the sweep as a page with charts to this file");
  simulate->add_flag("--json", options->json, "Print JSON");
  return simulate;
}

namespace {

int PrintSweep(const SimulateOptions& options, const policy::Workload& workload) {
  auto rows = RunSweeps(options, workload);
  if (!rows.ok()) return Fail(rows.status());
  if (!options.html.empty()) {
    const absl::Status written = WriteFile(options.html, SweepPage(options, *rows));
    if (!written.ok()) return Fail(written);
  }
  std::fputs((options.json ? SweepJson(options, *rows) : SweepText(*rows)).c_str(), stdout);
  const bool any = std::any_of(rows->begin(), rows->end(), [](const SweepRow& row) { return row.Ran(); });
  return any ? 0 : kCannotRun;
}

}  // namespace

int Simulate(const SimulateOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return Fail(status);
  auto workload = ReadTrace(options.trace);
  if (!workload.ok()) return Fail(workload.status());
  if (!options.convert.empty()) {
    if (absl::Status status = WriteTrace(options.convert, *workload); !status.ok()) return Fail(status);
  }
  if (!options.sweep.empty()) return PrintSweep(options, *workload);
  auto result = RunOne(options, *workload);
  if (!result.ok()) return Fail(result.status());
  if (!options.schedule.empty()) {
    const absl::Status written = WriteFile(options.schedule, policy::ScheduleCsv(result->execution));
    if (!written.ok()) return Fail(written);
  }
  std::fputs((options.json ? ReportJson(options, *result) : ReportText(*result)).c_str(), stdout);
  return 0;
}

}  // namespace spillway::integration
