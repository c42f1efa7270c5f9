#include "integration/cli/simulate/simulation_run.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "integration/cli/common/quantities.h"
#include "policy/offline/benefit_choice.h"
#include "policy/offline/coarse_bound.h"
#include "policy/offline/lp_bound.h"
#include "policy/offline/lp_plan.h"
#include "policy/planner/plan_search.h"
#include "policy/planner/tier_choice.h"
#include "policy/planner/transfer_choice.h"
#include "policy/simulator/simulator.h"

namespace spillway::integration {
namespace {

constexpr size_t kMaxDrives = 64;
constexpr double kMinPiece = 4096;

// Reads "2.4e9" or, for several drives, "2.4e9,0.8e9".
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
                                                   " are invalid: rates of ", reads->size(), " and of ",
                                                   writes->size(), " drives; expected: one each per drive"));
  if (reads->size() > kMaxDrives)
    return NotAccepted("ssd-read", options.ssd_read, absl::StrCat("at most ", kMaxDrives, " drives"));
  machine->ssd_read = machine->ssd_write = 0;
  for (size_t d = 0; d < reads->size(); ++d) {
    machine->ssd_read += (*reads)[d];
    machine->ssd_write += (*writes)[d];
    if (reads->size() > 1) machine->drives.push_back({(*reads)[d], (*writes)[d]});
  }
  return absl::OkStatus();
}

// Reads "IN,OUT", no more than each direction alone and no less than taking turns gives.
absl::Status ReadTogether(const SimulateOptions& options, policy::Machine* machine) {
  if (options.pcie_both.empty()) return absl::OkStatus();
  const auto rates = ReadRates("pcie-both", options.pcie_both);
  if (!rates.ok()) return rates.status();
  if (rates->size() != 2) return NotAccepted("pcie-both", options.pcie_both, "two rates, IN,OUT");
  machine->pcie_both = {(*rates)[0], (*rates)[1]};
  if (policy::LinkIsPossible(*machine)) return absl::OkStatus();
  return NotAccepted("pcie-both", options.pcie_both,
                     absl::StrCat("rates no higher than ", options.PcieIn(), " in and ", options.PcieOut(),
                                  " out, and together no lower than taking turns"));
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
  if (machine.piece_bytes != 0 && machine.piece_bytes < kMinPiece)
    return NotAccepted("piece", options.piece, "0 (whole tensors) or at least 4KiB");
  if (absl::Status status = ReadTogether(options, &machine); !status.ok()) return status;
  machine.ssd_shared = options.ssd_shared;
  machine.transfer_latency = std::llround(options.latency_us * 1000);
  return machine;
}

// Makes each kernel of each iteration last up to `noise` of its time more or less.
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

// Returns the options of an execution without noise.
policy::ExecutionOptions ExecutionOf(const SimulateOptions& options) {
  policy::ExecutionOptions execution;
  execution.iterations = options.iterations;
  if (options.policy == "lru") {
    execution.prefetch = false;
    execution.victims = policy::VictimOrder::kLeastRecentlyUsed;
  }
  return execution;
}

// Returns the plan of a policy; lru has none and moves on demand.
absl::StatusOr<policy::TransferPlan> PlanFor(const SimulateOptions& options, const policy::Workload& workload,
                                             const policy::Lifetimes& lifetimes,
                                             const policy::Machine& machine, SimulateResult* result) {
  const double begin = ThreadCpuSeconds();
  policy::TransferPlan plan;
  for (const policy::WorkloadKernel& kernel : workload.kernels) plan.kernel_times.push_back(kernel.duration);
  if (options.policy == "plan") {
    policy::SearchOptions search;
    search.bound = policy::FindQuickBound(workload, lifetimes, machine).Best();
    policy::PlanSearch planner(workload, lifetimes, machine, search);
    plan = planner.First();
    result->plan_first_s = ThreadCpuSeconds() - begin;
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
    plan.evictions = options.policy == "g10"
                         ? policy::ChooseByBenefit(workload, lifetimes, plan.kernel_times, choice)
                         : policy::ChooseTransfers(workload, lifetimes, plan.kernel_times, choice);
    policy::ChooseTiers(workload, lifetimes, machine, policy::TierOrder::kFarthestFirst, &plan);
    result->plan_first_s = ThreadCpuSeconds() - begin;
  } else if (options.policy == "lp") {
    auto rounded = policy::PlanByLp(workload, lifetimes, machine);
    if (!rounded.ok()) return rounded.status();
    plan = *std::move(rounded);
    result->plan_first_s = ThreadCpuSeconds() - begin;
  }
  result->plan_best_s = ThreadCpuSeconds() - begin;
  return plan;
}

bool IsOfOneTier(const SimulateOptions& options) { return options.bound.ends_with("-one-tier"); }

// Finds the bound that the percentage refers to. The LP's takes tensors of all sizes into account; a coarse
// one follows once a plan is known.
absl::Status FindBound(const SimulateOptions& options, const policy::Workload& workload,
                       const policy::Lifetimes& lifetimes, const policy::Machine& machine,
                       SimulateResult* result) {
  const double begin = ThreadCpuSeconds();
  result->bound_kind = options.bound;
  result->quick_bound = policy::FindQuickBound(workload, lifetimes, machine);
  result->bound = result->quick_bound.Best();
  if (options.bound.starts_with("lp")) {
    const auto form = IsOfOneTier(options) ? policy::LpForm::kKeepTier : policy::LpForm::kAnyPlan;
    auto found = policy::FindLpBound(workload, policy::FindLifetimes(workload), machine, form);
    if (!found.ok()) return found.status();
    result->bound = std::max(result->bound, found->iteration);
    result->bound_is_near = true;
  }
  result->bound_s = ThreadCpuSeconds() - begin;
  return absl::OkStatus();
}

// Finds the coarse bound. The search is limited by the time that `plan` takes if kernels last what they
// should. A tensor that is evicted in need may change its tier and be written twice, and a plan may promote, so
// such a run is bounded by all plans, not by those that keep a tier.
absl::Status FindCoarse(const SimulateOptions& options, const policy::Workload& workload,
                        const policy::Lifetimes& lifetimes, const policy::Machine& machine,
                        const policy::TransferPlan& plan, SimulateResult* result) {
  const double begin = ThreadCpuSeconds();
  policy::CoarseBoundOptions coarse;
  coarse.known = result->execution.iteration;
  uint64_t in_need = result->execution.evictions_in_need;
  if (options.noise != 0) {
    const auto run = policy::Execute(workload, lifetimes, machine, plan, ExecutionOf(options));
    if (!run.ok()) return run.status();
    coarse.known = run->iteration;
    in_need += run->evictions_in_need;
  }
  const bool one_tier = IsOfOneTier(options) && in_need == 0 && !plan.promotes;
  coarse.form = one_tier ? policy::LpForm::kKeepTier : policy::LpForm::kAnyPlan;
  result->bound_kind = one_tier ? "coarse-one-tier" : "coarse";
  coarse.known = std::max(coarse.known, workload.IdealTime());
  const auto found = policy::FindCoarseBound(workload, policy::FindLifetimes(workload), machine, coarse);
  if (!found.ok()) return found.status();
  result->bound = std::max(result->bound, found->iteration);
  result->bound_is_near = found->is_near;
  result->bound_s += ThreadCpuSeconds() - begin;
  return absl::OkStatus();
}

}  // namespace

double ThreadCpuSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double CpuSeconds() { return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC); }

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
  policy::Machine planned_for = *machine;
  if (options.plan_independent) planned_for.pcie_both = {};
  auto plan = PlanFor(options, workload, lifetimes, planned_for, &result);
  if (!plan.ok()) return plan.status();
  policy::ExecutionOptions execution = ExecutionOf(options);
  execution.durations = NoisyDurations(workload, options);
  execution.record = !options.schedule.empty();
  auto run = policy::Execute(workload, lifetimes, *machine, *plan, execution);
  if (!run.ok()) return run.status();
  result.execution = *std::move(run);
  if (options.bound.starts_with("coarse")) {
    const absl::Status found = FindCoarse(options, workload, lifetimes, *machine, *plan, &result);
    if (!found.ok()) return found;
  }
  // The bound with noise is that of the kernels with their actual times.
  result.bound =
      std::max(result.bound - result.quick_bound.compute, policy::Nanos{0}) + result.execution.ideal;
  return result;
}

double SimulateResult::PercentOfBound() const {
  const policy::Nanos best = std::max(bound, execution.ideal);
  if (execution.iteration == 0) return 100;
  return 100 * static_cast<double>(best) / static_cast<double>(execution.iteration);
}

}  // namespace spillway::integration
