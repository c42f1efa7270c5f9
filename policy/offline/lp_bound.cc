#include "policy/offline/lp_bound.h"

#include <algorithm>
#include <cmath>

#include "policy/bound/quick_bound.h"
#include "policy/offline/lp_solve.h"

namespace spillway::policy {
namespace {

constexpr double kTolerance = 1e-6;        // of the sum of the kernels
constexpr double kByteCost = 1e-4;         // relative to waiting while the same bytes pass the link
constexpr double kNegligibleBytes = 1024;  // fewer bytes come from the solver's tolerance, not from the plan

struct Solved {
  LpModel model;
  LpSolution solution;
};

absl::StatusOr<Solved> SolveFor(const LpTimeline& timeline, const Machine& machine, LpTiers tiers,
                                LpAim aim) {
  Solved solved;
  solved.model = MakeLpModel(timeline, machine, tiers);
  for (const auto* columns : {&solved.model.evicted_host, &solved.model.evicted_ssd}) {
    if (aim != LpAim::kFewBytes) break;
    for (int column : *columns) {
      if (column >= 0) solved.model.problem.cost[static_cast<size_t>(column)] += kByteCost;
    }
  }
  auto solution = SolveLp(solved.model.problem);
  if (absl::IsFailedPrecondition(solution.status()))
    return absl::ResourceExhaustedError("a kernel's own tensors exceed the GPU's memory");
  if (!solution.ok()) return solution.status();
  solved.solution = *std::move(solution);
  return solved;
}

// Returns whether a solution that ignored the host's size fits it.
bool FitsHost(const Solved& solved, const Machine& machine) {
  const double host = static_cast<double>(machine.host_bytes) / solved.model.byte_unit;
  for (size_t p = 0; p < solved.model.away.size(); ++p) {
    const auto value = [&](int column) { return solved.solution.values[static_cast<size_t>(column)]; };
    if (value(solved.model.away[p]) + value(solved.model.written[p]) > host) return false;
  }
  return true;
}

absl::StatusOr<Solved> SolveWithTiers(const LpTimeline& timeline, const Machine& machine, LpForm form,
                                      LpAim aim) {
  if (machine.host_bytes == 0) return SolveFor(timeline, machine, LpTiers::kSsdOnly, aim);
  int64_t most = 0;
  for (const LpSlot& slot : timeline.slots) most = std::max(most, slot.need);
  if (most <= static_cast<int64_t>(machine.host_bytes)) {  // otherwise it cannot fit
    auto host = SolveFor(timeline, machine, LpTiers::kHostOnly, aim);
    if (!host.ok() || FitsHost(*host, machine)) return host;
  }
  return SolveFor(timeline, machine, form == LpForm::kKeepTier ? LpTiers::kKeep : LpTiers::kMayChange, aim);
}

}  // namespace

absl::StatusOr<LpBound> FindLpBound(const Workload& workload, const Lifetimes& lifetimes,
                                    const Machine& machine, LpForm form, LpAim aim) {
  if (absl::Status status = CheckLpSolver(); !status.ok()) return status;
  const LpTimeline timeline = MakeLpTimeline(workload, lifetimes, machine);
  LpBound bound;
  bound.iteration = timeline.ideal;
  bound.gaps.assign(workload.kernels.size(), 0);
  if (timeline.slots.empty()) return bound;
  auto solved = SolveWithTiers(timeline, machine, form, aim);
  if (!solved.ok()) return solved.status();
  const LpModel& model = solved->model;
  const std::vector<double>& values = solved->solution.values;
  bound.columns = static_cast<uint32_t>(model.problem.cost.size());
  bound.rows = static_cast<uint32_t>(model.problem.row_lower.size());
  const double waits = std::max(0.0, solved->solution.objective) * model.nano_unit;
  bound.iteration +=
      static_cast<Nanos>(std::max(0.0, waits - kTolerance * static_cast<double>(timeline.ideal)));
  // If tiers may change, the LP forgets which tier has the copy of a tensor that is away again; the quick
  // bound does not.
  bound.iteration = std::max(bound.iteration, FindQuickBound(workload, lifetimes, machine).Best());
  for (size_t p = 0; p < model.gaps.size(); ++p) {
    if (model.gaps[p] < 0) continue;
    bound.gaps[timeline.slots[p].waiting] =
        std::llround(std::max(0.0, values[static_cast<size_t>(model.gaps[p])]) * model.nano_unit);
  }
  const auto bytes = [&](int column) {
    return column < 0 ? 0 : std::max(0.0, values[static_cast<size_t>(column)]) * model.byte_unit;
  };
  for (size_t i = 0; i < timeline.intervals.size(); ++i) {
    const LpEviction eviction{timeline.intervals[i].interval, bytes(model.evicted_host[i]),
                              bytes(model.evicted_ssd[i])};
    if (eviction.host_bytes + eviction.ssd_bytes >= kNegligibleBytes) bound.evictions.push_back(eviction);
  }
  return bound;
}

}  // namespace spillway::policy
