#include "policy/simulator/due_parts.h"

#include <algorithm>
#include <tuple>

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
                                      const PartState& state) {
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

std::vector<std::vector<uint32_t>> CutsOf(const Workload& workload, const Lifetimes& lifetimes,
                                          const TransferPlan& plan) {
  std::vector<std::vector<uint32_t>> cuts(workload.tensors.size());
  for (const PlannedAbsence& absence : plan.absences) {
    auto& list = cuts[lifetimes.intervals[absence.interval].tensor];
    list.push_back(absence.first_piece);
    list.push_back(absence.last_piece);
  }
  return cuts;
}

DueParts MakeDueParts(const Workload& workload, const Lifetimes& lifetimes, const TransferPlan& plan,
                      const PartState& state) {
  const int32_t kernels = static_cast<int32_t>(workload.kernels.size());
  DueParts due;
  due.writes.resize(workload.kernels.size());
  due.drops.resize(workload.kernels.size());
  const std::vector<PartAbsence> list = PartAbsences(lifetimes, plan, state);
  for (size_t i = 0; i < list.size(); ++i) {
    const PlannedAbsence& absence = plan.absences[list[i].absence];
    const IdleInterval& interval = lifetimes.intervals[absence.interval];
    const bool first = i == 0 || list[i - 1].version != list[i].version || list[i - 1].part != list[i].part;
    const bool last =
        i + 1 == list.size() || list[i + 1].version != list[i].version || list[i + 1].part != list[i].part;
    due.drops[interval.after].push_back({list[i].part, absence.from - interval.after,
                                         interval.before - interval.after, !last || interval.never_dirty,
                                         interval.returns,
                                         plan.host_lead < 0 ? -1 : absence.read_lead + plan.host_lead});
    if (interval.written < 0 || interval.never_dirty)
      due.first_writes.push_back({list[i].part, absence.tier, interval.after, interval.before});
    if (interval.never_dirty) continue;
    if (!plan.early_writes) {
      due.writes[interval.after].push_back({list[i].part, absence.tier, 0, interval.before - interval.after});
    } else if (first) {
      size_t end = i;
      while (end + 1 < list.size() && list[end + 1].version == list[i].version &&
             list[end + 1].part == list[i].part)
        ++end;
      const int32_t maker = interval.written < 0 ? interval.written + kernels : interval.written;
      due.writes[maker].push_back({list[i].part, absence.tier, list[i].after, list[end].before});
    }
  }
  for (const PlannedAbsence& absence : plan.absences) {
    const IdleInterval& interval = lifetimes.intervals[absence.interval];
    if (interval.before > workload.kernels.size())
      due.away_at_start.push_back({interval.tensor, absence.tier,
                                   interval.before - static_cast<uint32_t>(kernels), interval.returns});
  }
  return due;
}

std::vector<int64_t> ExpectedBytes(const Workload& workload, const Lifetimes& lifetimes, Bytes piece_bytes,
                                   const TransferPlan& plan) {
  const size_t kernels = workload.kernels.size();
  std::vector<int64_t> change(2 * kernels + 1, 0);
  for (const PlannedAbsence& absence : plan.absences) {
    const IdleInterval& interval = lifetimes.intervals[absence.interval];
    const int64_t bytes = static_cast<int64_t>(BytesOfPieces(
        workload.tensors[interval.tensor].bytes, piece_bytes, absence.first_piece, absence.last_piece));
    change[absence.from] -= bytes;
    change[interval.before] += bytes;
  }
  std::vector<int64_t> expected = lifetimes.live_bytes;
  int64_t away = 0;
  for (size_t position = 0; position < 2 * kernels; ++position) {
    away += change[position];
    expected[position % kernels] += away;
  }
  return expected;
}

}  // namespace spillway::policy
