#include "policy/simulator/due_parts.h"

#include <algorithm>
#include <tuple>

namespace spillway::policy {
namespace {

// One part in one eviction, with its distances from the kernel that made its content.
struct PartEviction {
  uint32_t version, part;
  uint32_t after, before;  // kernels since the content was made
  uint32_t eviction;
  bool operator<(const PartEviction& other) const {
    return std::tie(version, part, after) < std::tie(other.version, other.part, other.after);
  }
};

std::vector<PartEviction> PartEvictions(const Lifetimes& lifetimes, const TransferPlan& plan,
                                        const PartState& state) {
  std::vector<PartEviction> list;
  for (uint32_t a = 0; a < plan.evictions.size(); ++a) {
    const PlannedEviction& eviction = plan.evictions[a];
    const IdleInterval& interval = lifetimes.intervals[eviction.interval];
    const TensorState& tensor = state.tensors[interval.tensor];
    for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
      if (state.parts[p].first_piece < eviction.first_piece ||
          state.parts[p].last_piece > eviction.last_piece)
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
  for (const PlannedEviction& eviction : plan.evictions) {
    auto& list = cuts[lifetimes.intervals[eviction.interval].tensor];
    list.push_back(eviction.first_piece);
    list.push_back(eviction.last_piece);
  }
  return cuts;
}

DueParts MakeDueParts(const Workload& workload, const Lifetimes& lifetimes, const TransferPlan& plan,
                      const PartState& state) {
  const int32_t kernels = static_cast<int32_t>(workload.kernels.size());
  DueParts due;
  due.writes.resize(workload.kernels.size());
  due.drops.resize(workload.kernels.size());
  const std::vector<PartEviction> list = PartEvictions(lifetimes, plan, state);
  for (size_t i = 0; i < list.size(); ++i) {
    const PlannedEviction& eviction = plan.evictions[list[i].eviction];
    const IdleInterval& interval = lifetimes.intervals[eviction.interval];
    const bool first = i == 0 || list[i - 1].version != list[i].version || list[i - 1].part != list[i].part;
    const bool last =
        i + 1 == list.size() || list[i + 1].version != list[i].version || list[i + 1].part != list[i].part;
    due.drops[interval.after].push_back({list[i].part, eviction.from - interval.after,
                                         interval.before - interval.after, !last || interval.never_dirty,
                                         interval.returns,
                                         plan.host_lead < 0 ? -1 : eviction.read_lead + plan.host_lead});
    if (interval.written < 0 || interval.never_dirty)
      due.first_writes.push_back({list[i].part, eviction.tier, interval.after, interval.before});
    if (interval.never_dirty) continue;
    if (!plan.early_writes) {
      due.writes[interval.after].push_back(
          {list[i].part, eviction.tier, 0, interval.before - interval.after});
    } else if (first) {
      size_t end = i;
      while (end + 1 < list.size() && list[end + 1].version == list[i].version &&
             list[end + 1].part == list[i].part)
        ++end;
      const int32_t maker = interval.written < 0 ? interval.written + kernels : interval.written;
      due.writes[maker].push_back({list[i].part, eviction.tier, list[i].after, list[end].before});
    }
  }
  for (const PlannedEviction& eviction : plan.evictions) {
    const IdleInterval& interval = lifetimes.intervals[eviction.interval];
    if (interval.before > workload.kernels.size())
      due.away_at_start.push_back({interval.tensor, eviction.tier,
                                   interval.before - static_cast<uint32_t>(kernels), interval.returns});
  }
  return due;
}

std::vector<int64_t> AwayBytes(const Workload& workload, const Lifetimes& lifetimes, Bytes piece_bytes,
                               const TransferPlan& plan, bool host_only) {
  const size_t kernels = workload.kernels.size();
  std::vector<int64_t> change(2 * kernels + 1, 0);
  for (const PlannedEviction& eviction : plan.evictions) {
    if (host_only && eviction.tier != PlanTier::kHost) continue;
    const IdleInterval& interval = lifetimes.intervals[eviction.interval];
    const int64_t bytes = static_cast<int64_t>(BytesOfPieces(
        workload.tensors[interval.tensor].bytes, piece_bytes, eviction.first_piece, eviction.last_piece));
    change[eviction.from] += bytes;
    change[interval.before] -= bytes;
  }
  std::vector<int64_t> away(kernels, 0);
  int64_t now = 0;
  for (size_t position = 0; position < 2 * kernels; ++position) {
    now += change[position];
    away[position % kernels] += now;
  }
  return away;
}

std::vector<int64_t> ExpectedBytes(const Workload& workload, const Lifetimes& lifetimes, Bytes piece_bytes,
                                   const TransferPlan& plan) {
  std::vector<int64_t> expected = lifetimes.live_bytes;
  const std::vector<int64_t> away = AwayBytes(workload, lifetimes, piece_bytes, plan, /*host_only=*/false);
  for (size_t k = 0; k < expected.size(); ++k) expected[k] -= away[k];
  return expected;
}

}  // namespace spillway::policy
