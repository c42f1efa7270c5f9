#include "policy/offline/lp_timeline.h"

#include <algorithm>
#include <numeric>

namespace spillway::policy {
namespace {

// Returns the bytes that must be away at each kernel; 0 if everything fits.
std::vector<int64_t> NeedOf(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine) {
  const uint32_t kernels = static_cast<uint32_t>(workload.kernels.size());
  std::vector<bool> moves(workload.tensors.size(), false);
  for (const IdleInterval& interval : lifetimes.intervals) moves[interval.tensor] = true;
  std::vector<int64_t> change(kernels + 1, 0);
  const auto idle = [&](uint32_t begin, uint32_t end, int64_t bytes) {
    if (begin >= end) return;
    change[begin] -= bytes;
    change[end] += bytes;
  };
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    const std::vector<uint32_t>& uses = lifetimes.uses[t];
    if (moves[t] || uses.empty()) continue;
    const int64_t bytes = static_cast<int64_t>(workload.tensors[t].bytes);
    for (size_t u = 0; u + 1 < uses.size(); ++u) idle(uses[u] + 1, uses[u + 1], bytes);
    if (!workload.tensors[t].persistent) continue;
    idle(0, uses.front(), bytes);
    idle(uses.back() + 1, kernels, bytes);
  }
  std::vector<int64_t> need(kernels);
  int64_t shift = -static_cast<int64_t>(machine.gpu_bytes);
  for (uint32_t k = 0; k < kernels; ++k) {
    shift += change[k];
    need[k] = std::max<int64_t>(0, lifetimes.live_bytes[k] + shift);
  }
  return need;
}

// Points by their number among all: kernel k starts at 2 k and ends at 2 k + 1.
class TimelineMaker {
 public:
  TimelineMaker(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine)
      : workload_(workload),
        lifetimes_(lifetimes),
        kernels_(static_cast<uint32_t>(workload.kernels.size())),
        need_(NeedOf(workload, lifetimes, machine)),
        busy_(2 * size_t{kernels_}, false) {}

  LpTimeline Make() {
    timeline_.ideal = workload_.IdealTime();
    CollectIntervals();
    if (*std::max_element(need_.begin(), need_.end()) == 0) return std::move(timeline_);
    JoinSlots();
    Renumber();
    return std::move(timeline_);
  }

 private:
  // An eviction that relieves no kernel in need is of no use, so those intervals are left out.
  void CollectIntervals() {
    std::vector<uint32_t> in_need(2 * size_t{kernels_} + 1, 0);
    for (size_t k = 0; k < 2 * size_t{kernels_}; ++k)
      in_need[k + 1] = in_need[k] + (need_[k % kernels_] > 0 ? 1 : 0);
    for (uint32_t i = 0; i < lifetimes_.intervals.size(); ++i) {
      const IdleInterval& interval = lifetimes_.intervals[i];
      if (in_need[interval.before] == in_need[interval.after + 1]) continue;
      const bool made =
          interval.written < 0 ||
          Names(workload_.kernels[static_cast<uint32_t>(interval.written)].outputs, interval.tensor);
      const uint32_t maker = static_cast<uint32_t>(
          interval.written < 0 ? interval.written + static_cast<int32_t>(kernels_) : interval.written);
      timeline_.intervals.push_back({i, workload_.tensors[interval.tensor].bytes, 2 * maker + (made ? 1 : 0),
                                     2 * interval.after + 1, 2 * (interval.before % kernels_),
                                     interval.version, 0, interval.returns, interval.never_dirty});
    }
    const auto since_made = [this](const LpInterval& one) {
      const IdleInterval& interval = lifetimes_.intervals[one.interval];
      return static_cast<int64_t>(interval.after) - interval.written;
    };
    auto& list = timeline_.intervals;
    std::sort(list.begin(), list.end(), [&](const LpInterval& a, const LpInterval& b) {
      return std::pair(a.version, since_made(a)) < std::pair(b.version, since_made(b));
    });
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0 && list[i - 1].version == list[i].version) list[i].place = list[i - 1].place + 1;
      if (!list[i].never_dirty) busy_[list[i].release] = true;
      busy_[list[i].after] = busy_[list[i].before] = true;
    }
  }

  // Repeats until no point can go; few passes are enough, since a point that goes helps only its neighbors.
  void JoinSlots() {
    const uint32_t points = 2 * kernels_;
    std::vector<uint32_t> next(points), previous(points);
    slots_.resize(points);
    for (uint32_t p = 0; p < points; ++p) {
      next[p] = (p + 1) % points;
      previous[p] = (p + points - 1) % points;
      const bool kernel = p % 2 == 1;
      slots_[p] = {kernel ? workload_.kernels[p / 2].duration : 0, !kernel, p / 2, need_[p / 2]};
    }
    std::vector<uint32_t> open(points);
    std::iota(open.begin(), open.end(), 0u);
    gone_.assign(points, false);
    size_t left = points;
    while (!open.empty() && left > 1) {
      const uint32_t p = open.back();
      open.pop_back();
      const uint32_t before = previous[p], after = next[p];
      if (gone_[p] || busy_[p] || left == 1 ||
          slots_[p].need > std::min(slots_[before].need, slots_[after].need))
        continue;
      slots_[after].duration += slots_[p].duration;
      if (slots_[p].stretches && !slots_[after].stretches) {
        slots_[after].stretches = true;
        slots_[after].waiting = slots_[p].waiting;
      }
      next[before] = after;
      previous[after] = before;
      gone_[p] = true;
      --left;
      open.push_back(before);
      open.push_back(after);
    }
  }

  void Renumber() {
    std::vector<uint32_t> index(slots_.size(), 0);
    Nanos end = 0;
    for (uint32_t p = 0; p < slots_.size(); ++p) {
      if (gone_[p]) continue;
      index[p] = static_cast<uint32_t>(timeline_.slots.size());
      timeline_.slots.push_back(slots_[p]);
      timeline_.ends.push_back(end += slots_[p].duration);
    }
    for (LpInterval& interval : timeline_.intervals) {
      interval.release = index[interval.release];
      interval.after = index[interval.after];
      interval.before = index[interval.before];
    }
  }

  const Workload& workload_;
  const Lifetimes& lifetimes_;
  const uint32_t kernels_;
  const std::vector<int64_t> need_;
  std::vector<bool> busy_;     // something happens at that point
  std::vector<bool> gone_;     // points that were left out
  std::vector<LpSlot> slots_;  // by the point at their end
  LpTimeline timeline_;
};

}  // namespace

Nanos LpTimeline::Between(uint32_t from, uint32_t to) const {
  return ends[to] - ends[from] + (to > from ? 0 : ideal);
}

uint32_t LpTimeline::OpenAtLast(uint32_t from, uint32_t before, bool over_a_round) const {
  const auto count = static_cast<uint32_t>(slots.size());
  const uint32_t end = before + (before > from ? 0 : count) + (over_a_round ? count : 0);
  return (from + 1 != count && end >= count ? 1 : 0) + (end >= 2 * count ? 1 : 0);
}

LpTimeline MakeLpTimeline(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine) {
  return TimelineMaker(workload, lifetimes, machine).Make();
}

}  // namespace spillway::policy
