// PlanSearch: the planner. It makes a first plan at once, then better ones. Each plan is tried on a simulated
// machine, and the best one is kept. The times for which kernels waited for bytes in a trial are added to the
// kernel times from which the next plan is made. docs/planner.md describes the method. RuntimePlanner and
// `spillway simulate` use it. One thread at a time. A trial fails where the workload cannot run on the
// machine.

#ifndef SPILLWAY_POLICY_PLANNER_PLAN_SEARCH_H_
#define SPILLWAY_POLICY_PLANNER_PLAN_SEARCH_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/planner/tier_choice.h"
#include "policy/simulator/simulator.h"

namespace spillway::policy {

// Carries a plan out on a machine.
using PlanTrial = std::function<absl::StatusOr<Execution>(const Machine&, const TransferPlan&)>;

struct SearchOptions {
  uint32_t rounds = 8;         // of feedback, per setting, at most
  double good_enough = 99.99;  // percent of `bound`; the search ends there
  Nanos bound = 0;             // that no plan's iteration can beat; 0: the sum of the kernels
  // Tries a plan. Empty: Execute (simulator.h), in pieces, does.
  PlanTrial trial = {};
  // The most trials, times kernels, which bounds the time of long traces; three trials are always made. There
  // are about twice as many where the link's directions share: the search for independent directions makes as
  // many of its own.
  uint64_t work = 240'000;
};

class PlanSearch {
 public:
  // The arguments must outlive the search.
  PlanSearch(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
             const SearchOptions& options);

  // The first plan, which has not been tried.
  const TransferPlan& First() const { return first_; }
  // Makes and tries the plan of the next setting or round. False when nothing is left to try.
  // ResourceExhausted, from the simulator: the workload cannot run on this machine.
  absl::StatusOr<bool> Improve();

  const TransferPlan& best() const { return best_; }
  Nanos best_iteration() const { return best_iteration_; }  // 0 before the first Improve
  uint32_t trials() const { return trials_ + alone_trials_; }

  // Tensors smaller than this stay on the GPU. The search must get lifetimes of at least this least size.
  static Bytes LeastBytes(const Machine& machine);

 private:
  struct Setting {
    TierOrder order = TierOrder::kSpread;
    Nanos host_lead = -1;
    bool write_ledger = true;
    bool read_ledger = false, early_returns = false;
    bool one_way_first = false;
    // More than 0: the link counts as slow as if this part of the bytes that the first plan sends to the disk
    // went there.
    double disk_part = 0;
    bool both_run = false;  // time for copies is counted as if both directions of PCIe always ran
    bool promotes = false;  // as in TransferPlan
    Nanos best = 0;
  };
  void AddSettings();
  TransferPlan Make(const Setting& setting, const std::vector<Nanos>& kernel_times) const;
  absl::StatusOr<Execution> Try(TransferPlan plan);
  absl::StatusOr<bool> ImproveAlone();
  double DiskShare(const TransferPlan& plan) const;
  void LeadHostReads(Nanos lead, TransferPlan* plan) const;
  void NextSetting();
  bool MayPromote() const;

  const Workload& workload_;
  const Lifetimes& lifetimes_;
  const Machine& machine_;
  const Machine planned_;  // with the rates that its drives reach together
  const SearchOptions options_;
  // The same machine with independent directions of PCIe, and a search on it, whose best plan is tried, too.
  // The search is null where the directions are independent, and when it has ended.
  const Machine independent_;
  std::unique_ptr<PlanSearch> alone_;
  std::vector<Nanos> nominal_;
  std::vector<Setting> settings_;
  size_t setting_ = 0;
  uint32_t round_ = 0;
  bool first_pass_ = true;  // each setting once; then rounds for the best
  std::vector<Nanos> times_, waits_;
  TransferPlan first_, best_;
  double disk_share_ = 0;  // the part of the leaving bytes that the first plan sends to the disk
  Nanos best_iteration_ = 0;
  uint32_t trials_ = 0;
  uint32_t alone_trials_ = 0;  // of the search for independent directions, when it has ended
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_PLAN_SEARCH_H_
