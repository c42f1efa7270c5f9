#include "policy/simulator/due_parts.h"

#include <algorithm>
#include <tuple>

#include "policy/planner/tier_choice.h"

namespace spillway::policy {
namespace {

// A part in an absence, with its distances from the kernel that made its content.
struct PartAbsence {
  uint32_t version, part;
  uint32_t after, before;  // kernels since the content was made
  uint32_t absence;
  bool operator<(const PartAbsence& other) const {
    return std::tie(version, part, after) < std::tie(other.version, other.part, other.after);
  }
};

std::vector<PartAbsence> PartAbsences(const Lifetimes& lifetimes, const TransferPlan& plan,
                                      const ExecutionState& state) {
  std::vector<PartAbsence> list;
  for (uint32_t a = 0; a < plan.absences.size(); ++a) {
    const PlannedAbsence& absence = plan.absences[a];
    const IdleInterval& interval = lifetimes.intervals[absence.interval];
    const TensorState& tensor = state.tensors[interval.tensor];
    for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
      if (state.parts[p].first_piece < absence.first_piece || state.parts[p].last_piece > absence.last_piece)
        continue;
      list.push_back({interval.version, p, static_cast<uint32_t>(interval.after - interval.written),
                      static_cast<uint32_t>(interval.before - interval.written), a});
    }
  }
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

ExecutionTables MakeExecutionTables(const Workload& workload, const Lifetimes& lifetimes,
                                    const Machine& machine, const TransferPlan& plan,
                                    const ExecutionState& state) {
  const int32_t kernels = static_cast<int32_t>(workload.kernels.size());
  ExecutionTables tables;
  tables.writes.resize(workload.kernels.size());
  tables.drops.resize(workload.kernels.size());
  std::vector<Nanos> leads(plan.absences.size(), -1);
  if (plan.host_lead >= 0) {
    leads = HostReadLeads(workload, lifetimes, machine, plan);
    for (Nanos& lead : leads) lead += plan.host_lead;
  }
  const std::vector<PartAbsence> list = PartAbsences(lifetimes, plan, state);
  for (size_t i = 0; i < list.size(); ++i) {
    const PlannedAbsence& absence = plan.absences[list[i].absence];
    const IdleInterval& interval = lifetimes.intervals[absence.interval];
    const bool first = i == 0 || list[i - 1].version != list[i].version || list[i - 1].part != list[i].part;
    const bool last =
        i + 1 == list.size() || list[i + 1].version != list[i].version || list[i + 1].part != list[i].part;
    tables.drops[interval.after].push_back({list[i].part, absence.tier, absence.from - interval.after,
                                            interval.before - interval.after, !last || interval.never_dirty,
                                            interval.returns, leads[list[i].absence]});
    if (interval.written < 0 || interval.never_dirty)
      tables.first_writes.push_back({list[i].part, absence.tier, interval.after, interval.before});
    if (interval.never_dirty) continue;
    if (!plan.early_writes) {
      tables.writes[interval.after].push_back(
          {list[i].part, absence.tier, 0, interval.before - interval.after});
    } else if (first) {
      size_t end = i;
      while (end + 1 < list.size() && list[end + 1].version == list[i].version &&
             list[end + 1].part == list[i].part)
        ++end;
      const int32_t maker = interval.written < 0 ? interval.written + kernels : interval.written;
      tables.writes[maker].push_back({list[i].part, absence.tier, list[i].after, list[end].before});
    }
  }
  for (const PlannedAbsence& absence : plan.absences) {
    const IdleInterval& interval = lifetimes.intervals[absence.interval];
    if (interval.before > workload.kernels.size())
      tables.away_at_start.push_back({interval.tensor, absence.tier,
                                      interval.before - static_cast<uint32_t>(kernels), interval.returns});
  }
  return tables;
}

}  // namespace spillway::policy
