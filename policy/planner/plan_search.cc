#include "policy/planner/plan_search.h"

#include <algorithm>
#include <utility>

#include "policy/bound/quick_bound.h"
#include "policy/planner/transfer_choice.h"

namespace spillway::policy {
namespace {

constexpr Bytes kMargin = 64 << 20;        // of the GPU, planned to stay free; a sixty-fourth of a small one
constexpr double kQueueEfficiency = 0.99;  // of the copy queues, that choices are made for
constexpr size_t kSettingsWithRounds = 2;
constexpr uint32_t kTrialIterations = 4;
constexpr Nanos kShortLead = 50'000'000, kLongLead = 500'000'000;

bool UsesDisk(const TransferPlan& plan) {
  return std::any_of(plan.evictions.begin(), plan.evictions.end(),
                     [](const PlannedEviction& eviction) { return eviction.tier == PlanTier::kDisk; });
}

// The machine with the rates that its drives reach together, which plans can count on.
Machine Planned(Machine machine) {
  const Drive together = RatesTogether(machine);
  machine.ssd_read = together.read;
  machine.ssd_write = together.write;
  return machine;
}

// The rate of copies that are made one after the other, of which the part `share` goes over the drives.
double InTurn(double link, double drives, double share) {
  return 1 / (share / std::min(link, drives) + (1 - share) / link);
}

Machine Independent(Machine machine) {
  machine.pcie_both = {};
  return machine;
}

}  // namespace

Bytes PlanSearch::LeastBytes(const Machine& machine) {
  return std::min<Bytes>(1 << 20, machine.gpu_bytes / 4096);
}

PlanSearch::PlanSearch(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                       const SearchOptions& options)
    : workload_(workload),
      lifetimes_(lifetimes),
      machine_(machine),
      planned_(Planned(machine)),
      options_(options),
      independent_(Independent(machine)) {
  for (const WorkloadKernel& kernel : workload.kernels) nominal_.push_back(kernel.duration);
  settings_.push_back({TierOrder::kSpread, -1});
  first_ = Make(settings_[0], nominal_);
  if (machine.host_bytes != 0 && UsesDisk(first_)) {
    disk_share_ = DiskShare(first_);
    LeadHostReads(kLongLead, &first_);  // as the first of the following
    settings_.clear();
    for (TierOrder order : {TierOrder::kSpread, TierOrder::kNearestFirst, TierOrder::kFarthestFirst}) {
      settings_.push_back({order, kLongLead});
      settings_.push_back({order, kShortLead});
    }
  }
  AddSettings();
  times_ = nominal_;
  waits_.assign(nominal_.size(), 0);
}

void PlanSearch::AddSettings() {
  // The fewest bytes may win where the links limit everything, whether or not there is time to write them.
  Setting fewest = settings_[0];
  fewest.write_ledger = false;
  settings_.insert(settings_.begin() + 1, fewest);
  // Tensors that have time to return are better than those used last where many next uses lie close together.
  Setting returning = settings_[0];
  returning.read_ledger = true;
  settings_.push_back(returning);
  returning.early_returns = true;
  settings_.push_back(returning);
  // The disk lets less leave in time than the link alone would carry. A plan made for that rate sends less to
  // the disk than the first, so three quarters of the first plan's part are tried, too.
  if (disk_share_ > 0) {
    for (const double part : {1.0, 0.75}) {
      Setting blended = settings_[0];
      blended.disk_part = part;
      settings_.push_back(blended);
    }
  }
  // Tensors that need not move both ways are better than those used last where the links limit everything.
  for (Setting one_way : {settings_[0], fewest}) {
    one_way.one_way_first = true;
    settings_.push_back(one_way);
  }
  if (!DirectionsShare(machine_)) return;
  // Copies have less time than either direction has alone where both directions run most of the time.
  for (Setting both_run : {settings_[0], returning}) {
    both_run.both_run = true;
    settings_.push_back(both_run);
  }
  SearchOptions alone = options_;
  alone.bound = FindQuickBound(workload_, lifetimes_, independent_).Best();
  alone_ = std::make_unique<PlanSearch>(workload_, lifetimes_, independent_, alone);
}

TransferPlan PlanSearch::Make(const Setting& setting, const std::vector<Nanos>& kernel_times) const {
  ChoiceOptions choice;
  choice.budget_bytes = planned_.gpu_bytes - std::min(kMargin, planned_.gpu_bytes / 64);
  choice.piece_bytes = planned_.piece_bytes;
  choice.write_ledger = setting.write_ledger;
  choice.one_way_first = setting.one_way_first;
  LinkRates link{planned_.pcie_in, planned_.pcie_out};
  if (setting.both_run) link = planned_.pcie_both;
  if (setting.disk_part > 0) {
    const double share = setting.disk_part * disk_share_;
    link = {InTurn(link.in, planned_.ssd_read, share), InTurn(link.out, planned_.ssd_write, share)};
  }
  if (planned_.host_bytes == 0)
    link = {std::min(link.in, planned_.ssd_read), std::min(link.out, planned_.ssd_write)};
  if (setting.read_ledger) {
    choice.early_returns = setting.early_returns;
    choice.read_rate = kQueueEfficiency * link.in;
  }
  choice.write_rate = kQueueEfficiency * link.out;
  TransferPlan plan;
  plan.kernel_times = kernel_times;
  plan.evictions = ChooseTransfers(workload_, lifetimes_, kernel_times, choice);
  ChooseTiers(workload_, lifetimes_, planned_, setting.order, &plan);
  if (planned_.host_bytes != 0 && UsesDisk(plan)) LeadHostReads(setting.host_lead, &plan);
  plan.promotes = setting.promotes;
  return plan;
}

// The part of the leaving bytes that goes to the disk.
double PlanSearch::DiskShare(const TransferPlan& plan) const {
  double disk = 0, all = 0;
  for (const PlannedEviction& eviction : plan.evictions) {
    const IdleInterval& interval = lifetimes_.intervals[eviction.interval];
    const double bytes =
        static_cast<double>(BytesOfPieces(workload_.tensors[interval.tensor].bytes, planned_.piece_bytes,
                                          eviction.first_piece, eviction.last_piece));
    all += bytes;
    if (eviction.tier == PlanTier::kDisk) disk += bytes;
  }
  return all > 0 ? disk / all : 0;
}

void PlanSearch::LeadHostReads(Nanos lead, TransferPlan* plan) const {
  plan->host_lead = lead;
  if (lead >= 0) FindReadLeads(workload_, lifetimes_, machine_, plan);
}

absl::StatusOr<Execution> PlanSearch::Try(TransferPlan plan) {
  ExecutionOptions execution;
  execution.iterations = kTrialIterations;
  auto result = options_.trial ? options_.trial(machine_, plan)
                               : Execute(workload_, lifetimes_, machine_, plan, execution);
  if (!result.ok()) return result;
  ++trials_;
  if (best_iteration_ == 0 || result->iteration < best_iteration_) {
    best_iteration_ = result->iteration;
    best_ = std::move(plan);
  }
  return result;
}

// Continues the search for independent directions, and tries its best plan when it has ended.
absl::StatusOr<bool> PlanSearch::ImproveAlone() {
  if (alone_ == nullptr) return false;
  auto more = alone_->Improve();
  if (!more.ok() || *more) return more;
  const std::unique_ptr<PlanSearch> done = std::move(alone_);
  alone_trials_ = done->trials();
  auto result = Try(done->best());
  if (!result.ok()) return result.status();
  return true;
}

absl::StatusOr<bool> PlanSearch::Improve() {
  const Nanos bound = options_.bound != 0 ? options_.bound : workload_.IdealTime();
  if (best_iteration_ != 0 &&
      static_cast<double>(bound) >= options_.good_enough / 100 * static_cast<double>(best_iteration_))
    return false;
  const bool spent = trials_ >= std::max<uint64_t>(3, options_.work / nominal_.size());
  if (setting_ == settings_.size() || spent) return ImproveAlone();
  auto result = Try(trials_ == 0 ? first_ : Make(settings_[setting_], times_));
  if (!result.ok()) return result.status();
  Setting& setting = settings_[setting_];
  if (setting.best == 0 || result->iteration < setting.best) setting.best = result->iteration;
  // The mean with the waits of the rounds before damps the feedback.
  for (size_t k = 0; k < waits_.size(); ++k) {
    waits_[k] = round_ == 0 ? result->read_waits[k] : (waits_[k] + result->read_waits[k]) / 2;
    times_[k] = nominal_[k] + waits_[k];
  }
  ++round_;
  if (first_pass_ && settings_.size() > 1 ? round_ >= 1 : round_ > options_.rounds) NextSetting();
  return true;
}

// Plans of whole tensors stand for the run time's, which moves nothing from one tier to another.
bool PlanSearch::MayPromote() const {
  return disk_share_ > 0 && machine_.piece_bytes != 0 && !options_.trial;
}

// The first pass tries each setting once, without feedback. Then the best settings get the rounds, as they
// are and promoting.
void PlanSearch::NextSetting() {
  round_ = 0;
  times_ = nominal_;
  ++setting_;
  if (!first_pass_ || setting_ != settings_.size() || settings_.size() == 1) return;
  first_pass_ = false;
  std::stable_sort(settings_.begin(), settings_.end(),
                   [](const Setting& a, const Setting& b) { return a.best < b.best; });
  settings_.resize(std::min(settings_.size(), kSettingsWithRounds));
  setting_ = 0;
  for (size_t i = 0, count = settings_.size(); i < count && MayPromote(); ++i) {
    settings_.push_back(settings_[i]);
    settings_.back().promotes = true;
  }
}

}  // namespace spillway::policy
