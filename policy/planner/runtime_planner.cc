#include "policy/planner/runtime_planner.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "policy/bound/quick_bound.h"
#include "policy/planner/tier_choice.h"
#include "policy/simulator/due_parts.h"

namespace spillway::policy {
namespace {

// The rates until they are measured: PCIe 4.0 x16 in practice, and a middling SSD.
constexpr double kGuessedPcie = 12e9, kGuessedRead = 2e9, kGuessedWrite = 1.5e9;
// A better plan replaces the one in force when it saves this part of the iteration.
constexpr double kWorthChanging = 0.002;

// The most trials, times launches: half of the offline search's, since the job runs meanwhile.
constexpr uint64_t kWork = 120'000;

constexpr uint32_t kFreePartWhenSteady = 64, kLaunchesAheadWhenSteady = 1;
constexpr Nanos kNanosAheadWhenSteady = 1'000'000;
// The first two iterations bring everything to where the plan has it, and the last two are measured; twelve
// iterations give the same result.
constexpr uint32_t kIterationsOfTrial = 4;

// The host takes whatever comes where there is no disk.
Machine WithHost(Machine machine, bool has_disk) {
  if (!has_disk) machine.host_bytes = kMaxWorkloadBytes;
  return machine;
}

Machine Completed(Machine machine) {
  for (auto [rate, guess] : {std::pair(&machine.pcie_in, kGuessedPcie),
                             {&machine.pcie_out, kGuessedPcie},
                             {&machine.ssd_read, kGuessedRead},
                             {&machine.ssd_write, kGuessedWrite}}) {
    if (!(*rate > 0)) *rate = guess;
  }
  machine.pcie_both = PossibleTogether(machine, machine.pcie_both);
  machine.piece_bytes = 0;
  return machine;
}

Bytes SetBytes(const Workload& workload, const WorkloadKernel& kernel) {
  Bytes bytes = 0;
  std::vector<uint32_t> named;
  std::ranges::set_union(kernel.inputs, kernel.outputs, std::back_inserter(named));
  for (uint32_t t : named) bytes += workload.tensors[t].bytes;
  return bytes;
}

void Insert(std::vector<uint32_t>* ascending, uint32_t id) {
  const auto at = std::ranges::lower_bound(*ascending, id);
  if (at == ascending->end() || *at != id) ascending->insert(at, id);
}

}  // namespace

RuntimeMachine WhenSteady(RuntimeMachine machine) {
  machine.free_part = kFreePartWhenSteady;
  machine.run_ahead.launches = std::min(machine.run_ahead.launches, kLaunchesAheadWhenSteady);
  machine.run_ahead.nanos = std::min(machine.run_ahead.nanos, kNanosAheadWhenSteady);
  return machine;
}

RuntimePlanner::RuntimePlanner(RecordedWorkload recorded, const RuntimeMachine& machine)
    : recorded_(std::move(recorded)),
      machine_(machine),
      true_lifetimes_(FindLifetimes(recorded_.workload)),
      block_machine_(recorded_, true_lifetimes_),
      machine_of_trials_(WithHost(Completed(machine.machine), machine.has_disk)),
      workload_(recorded_.workload),
      planned_machine_(Completed(machine.machine)) {
  for (const WorkloadKernel& kernel : workload_.kernels)
    largest_set_ = std::max(largest_set_, SetBytes(workload_, kernel));
  forecast_.ideal = workload_.IdealTime();
  forecast_.bound = FindQuickBound(recorded_.workload, true_lifetimes_, planned_machine_).Best();
  if (largest_set_ > planned_machine_.gpu_bytes) return;
  const Bytes spare = planned_machine_.gpu_bytes - largest_set_;
  planned_machine_.gpu_bytes -= std::min(planned_machine_.gpu_bytes / machine.free_part, spare);
  Widen();
  for (size_t k = 0; k < 2 * workload_.kernels.size(); ++k)
    starts_.push_back(starts_.back() + workload_.kernels[k % workload_.kernels.size()].duration);
  without_ops_ = WithoutOps();
  // The host may have to wait for memory that it has freed.
  if (Fits(machine.machine.gpu_bytes)) {
    Adopt(MakePlan(TransferPlan()));
    forecast_.iteration = forecast_.ideal;
    return;
  }
  SearchOptions options;
  options.bound = forecast_.bound;
  options.work = kWork;
  // The search may ask for a trial on a link whose directions are independent.
  options.trial = [this](const Machine& searched, const TransferPlan& transfers) {
    Machine machine_of_trial = machine_of_trials_;
    machine_of_trial.pcie_both = searched.pcie_both;
    return Try(machine_of_trial, transfers);
  };
  search_ = std::make_unique<PlanSearch>(workload_, lifetimes_, planned_machine_, options);
  Adopt(MakePlan(search_->First()));
}

// The number of kernels by which the GPU may be behind when the host asks for each kernel's blocks. The
// tensors of these kernels together take three quarters of the memory at most, so that something is left for
// all others.
std::vector<uint32_t> RuntimePlanner::KernelsAhead() const {
  const auto& kernels = recorded_.workload.kernels;
  const uint32_t size = static_cast<uint32_t>(kernels.size());
  std::vector<uint32_t> ahead(size, 0);
  const Bytes most = planned_machine_.gpu_bytes / 4 * 3;
  const uint32_t most_kernels = std::min(MigrationPlan::kMaxAhead, size - 1);
  std::vector<uint32_t> seen(recorded_.workload.tensors.size(),
                             size);  // the kernel that they were counted for
  const auto new_bytes = [&](uint32_t kernel, uint32_t asking) {
    Bytes bytes = 0;
    for (const auto* ids : {&kernels[kernel].inputs, &kernels[kernel].outputs}) {
      for (uint32_t t : *ids) {
        if (std::exchange(seen[t], asking) != asking) bytes += recorded_.workload.tensors[t].bytes;
      }
    }
    return bytes;
  };
  for (uint32_t k = 0; k < size; ++k) {
    Nanos time = 0;
    Bytes bytes = new_bytes(k, k);
    while (ahead[k] < most_kernels &&
           (ahead[k] < machine_.run_ahead.launches || time < machine_.run_ahead.nanos)) {
      const uint32_t before = (k + size - ahead[k] - 1) % size;
      time += kernels[before].duration;
      bytes += new_bytes(before, k);
      if (bytes > most) break;
      ++ahead[k];
    }
  }
  return ahead;
}

// Lets a block's use reach back to where the host asks for it: from there on its bytes have to be back, and
// the memory of new tensors is taken. Tensors are not idle within that reach, so intervals that lie in it are
// removed.
void RuntimePlanner::Widen() {
  const uint32_t size = static_cast<uint32_t>(workload_.kernels.size());
  const std::vector<uint32_t> ahead = KernelsAhead();
  const auto asked_at = [&](uint32_t k) { return (k + size - ahead[k]) % size; };
  for (const IdleInterval& interval : true_lifetimes_.intervals) {
    if (!interval.returns) continue;
    const uint32_t use = interval.before % size;
    if (ahead[use] == 0 || interval.before - ahead[use] < interval.after + 2) continue;
    Insert(&workload_.kernels[asked_at(use)].inputs, interval.tensor);
  }
  for (uint32_t t = 0; t < workload_.tensors.size(); ++t) {
    std::optional<TensorLife>& life = workload_.tensors[t].life;
    if (!life) continue;
    // A life never reaches back into the same tensor's life of the iteration before.
    const uint32_t dead = (life->first + size - life->last - 1) % size;
    life->first = (life->first + size - std::min(ahead[life->first], dead)) % size;
  }
  lifetimes_ = FindLifetimes(workload_, PlanSearch::LeastBytes(planned_machine_));
  std::erase_if(lifetimes_.intervals, [&](const IdleInterval& interval) {
    const uint32_t next = NextUse(interval.tensor, interval.before % size);
    const uint32_t wait = (next + size - interval.before % size) % size;
    return interval.returns && interval.before + wait - interval.after <= ahead[next] + 1;
  });
}

// The first kernel from `position` on that names the tensor in the recording.
uint32_t RuntimePlanner::NextUse(uint32_t tensor, uint32_t position) const {
  const std::vector<uint32_t>& uses = true_lifetimes_.uses[tensor];
  const auto at = std::ranges::lower_bound(uses, position);
  return at != uses.end() ? *at : uses.front();
}

bool RuntimePlanner::Improve() {
  if (search_ == nullptr) return false;
  const auto more = search_->Improve();
  if (!more.ok()) {  // it cannot be executed
    plan_ = nullptr;
    search_ = nullptr;
    forecast_.iteration = 0;
    return false;
  }
  const Nanos best = search_->best_iteration();
  if (search_->trials() == 1) {
    forecast_.iteration = best;  // of the first plan
  } else if (static_cast<double>(best) < (1 - kWorthChanging) * static_cast<double>(forecast_.iteration)) {
    Adopt(MakePlan(search_->best()));
    forecast_.iteration = best;
  }
  return *more;
}

absl::StatusOr<Execution> RuntimePlanner::Try(const Machine& machine, const TransferPlan& transfers) const {
  ExecutionOptions options;
  options.iterations = kIterationsOfTrial;
  return block_machine_.Run(machine, MakePlan(transfers), options);
}

// ---- Turning planned evictions into ops.

MigrationPlan RuntimePlanner::WithoutOps() const {
  MigrationPlan plan;
  plan.start = recorded_.start;
  plan.iteration_launches = static_cast<uint32_t>(recorded_.workload.kernels.size());
  for (const WorkloadKernel& kernel : recorded_.workload.kernels) {
    const auto first = static_cast<uint32_t>(plan.uses.size());
    std::vector<uint32_t> named;
    std::ranges::set_union(kernel.inputs, kernel.outputs, std::back_inserter(named));
    for (const uint32_t t : named) plan.uses.push_back(recorded_.blocks[t]);
    plan.launches.push_back({first, static_cast<uint32_t>(named.size())});
    plan.durations.push_back(kernel.duration);
  }
  plan.budget_bytes = planned_machine_.gpu_bytes;
  plan.run_ahead = machine_.run_ahead;
  return plan;
}

std::shared_ptr<const MigrationPlan> RuntimePlanner::MakePlan(TransferPlan transfers) const {
  std::erase_if(transfers.evictions,
                [](const PlannedEviction& eviction) { return eviction.first_piece >= eviction.last_piece; });
  bool fits = true;
  for (PlannedEviction& eviction : transfers.evictions) {
    if (machine_.has_disk || eviction.tier == PlanTier::kHost) continue;
    eviction.tier = PlanTier::kHost;  // as far as it goes
    fits = false;
  }
  if (!fits && transfers.host_lead >= 0) FindReadLeads(workload_, lifetimes_, planned_machine_, &transfers);
  auto plan = std::make_shared<MigrationPlan>(without_ops_);
  plan->expected_bytes = ExpectedBytes(workload_, lifetimes_, /*piece_bytes=*/0, transfers);
  AddOps(transfers, plan.get());
  return plan;
}

void RuntimePlanner::Adopt(std::shared_ptr<const MigrationPlan> plan) {
  forecast_.fetched_host = forecast_.fetched_disk = forecast_.spilled_host = forecast_.spilled_disk = 0;
  std::unordered_map<TraceBlock, Bytes> sizes;
  for (size_t t = 0; t < recorded_.blocks.size(); ++t)
    sizes[recorded_.blocks[t]] = workload_.tensors[t].bytes;
  for (const PlanOp& op : plan->ops) {
    const bool host = op.tier == PlanTier::kHost;
    const Bytes bytes = sizes[op.block];
    if (op.kind == PlanOpKind::kFetch) (host ? forecast_.fetched_host : forecast_.fetched_disk) += bytes;
    if (op.kind == PlanOpKind::kCopyOut) (host ? forecast_.spilled_host : forecast_.spilled_disk) += bytes;
  }
  plan_ = std::move(plan);
}

namespace {

// The evictions ordered by version of the content, then by their drops: the copy of a version's first
// eviction is good for all of them.
std::vector<uint32_t> ByVersion(const Lifetimes& lifetimes, const TransferPlan& transfers) {
  std::vector<uint32_t> order(transfers.evictions.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t a) {
    const IdleInterval& interval = lifetimes.intervals[transfers.evictions[a].interval];
    return std::tuple(interval.version, static_cast<int64_t>(interval.after) - interval.written, a);
  });
  return order;
}

void SortOps(MigrationPlan* plan) {
  const auto key = [plan](const PlanOp& op) {
    const bool fetch = op.kind == PlanOpKind::kFetch;
    const int kind = op.kind == PlanOpKind::kDrop ? 0 : op.kind == PlanOpKind::kCopyOut ? 1 : 2;
    const uint32_t ahead = (op.needed + plan->iteration_launches - op.launch) % plan->iteration_launches;
    return std::tuple(fetch ? op.launch : op.launch + 1, kind, ahead);
  };
  std::ranges::stable_sort(plan->ops, {}, key);
}

}  // namespace

void RuntimePlanner::AddOps(const TransferPlan& transfers, MigrationPlan* plan) const {
  const uint32_t size = plan->iteration_launches;
  int64_t version = -1;
  for (const uint32_t a : ByVersion(lifetimes_, transfers)) {
    const PlannedEviction& eviction = transfers.evictions[a];
    const IdleInterval& interval = lifetimes_.intervals[eviction.interval];
    PlanOp op;
    op.tier = eviction.tier;
    op.block = recorded_.blocks[interval.tensor];
    if (interval.version != version) {
      version = interval.version;
      op.kind = PlanOpKind::kCopyOut;
      const bool after_use = interval.never_dirty || !transfers.early_writes;
      const int64_t made = after_use ? int64_t{interval.after} : int64_t{interval.written};
      op.launch = static_cast<uint32_t>((made + size) % size);
      op.needed = interval.after;
      plan->ops.push_back(op);
    }
    op.kind = PlanOpKind::kDrop;
    op.launch = interval.after;
    op.needed = interval.returns ? NextUse(interval.tensor, interval.before % size) : interval.before % size;
    plan->ops.push_back(op);
    if (!interval.returns) continue;
    op.kind = PlanOpKind::kFetch;
    op.needed = interval.before % size;
    op.launch = EarliestFetch(interval, eviction,
                              transfers.host_lead < 0 ? -1 : eviction.read_lead + transfers.host_lead);
    plan->ops.push_back(op);
  }
  SortOps(plan);
}

// The fetch may start right after its drop. A lead lets it start no earlier than that time before its use, by
// the plan's times.
uint32_t RuntimePlanner::EarliestFetch(const IdleInterval& interval, const PlannedEviction& eviction,
                                       Nanos lead) const {
  const uint32_t size = static_cast<uint32_t>(workload_.kernels.size());
  uint32_t launch = interval.after + 1;
  if (lead >= 0 && eviction.tier == PlanTier::kHost) {
    const auto earlier = std::ranges::upper_bound(starts_.begin() + launch, starts_.begin() + interval.before,
                                                  starts_[interval.before] - lead);
    launch =
        earlier == starts_.begin() + launch ? launch : static_cast<uint32_t>(earlier - starts_.begin()) - 1;
  }
  return launch % size;
}

}  // namespace spillway::policy
