#include "policy/offline/coarse_timeline.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace spillway::policy {
namespace {

class Coarsener {
 public:
  Coarsener(const LpTimeline& fine, uint32_t most_slots)
      : fine_(fine), points_(static_cast<uint32_t>(fine.slots.size())), most_(std::max(2u, most_slots)) {}

  LpTimeline Make() {
    ChoosePoints();
    JoinSlots();
    JoinIntervals();
    return std::move(coarse_);
  }

 private:
  // Cuts the points into parts of equal weight, by time and by the bytes that come and go. In each part the
  // point stays at which most bytes must be away.
  void ChoosePoints() {
    std::vector<double> events(points_, 0);
    double bytes = 0;
    for (const LpInterval& interval : fine_.intervals) {
      events[interval.after] += static_cast<double>(interval.bytes);
      events[interval.before] += static_cast<double>(interval.bytes);
      bytes += 2 * static_cast<double>(interval.bytes);
    }
    double sum = 0;
    uint32_t part = 0;
    for (uint32_t p = 0; p < points_; ++p) {
      sum +=
          static_cast<double>(fine_.slots[p].duration) / static_cast<double>(std::max<Nanos>(1, fine_.ideal));
      if (bytes > 0) sum += events[p] / bytes;
      const uint32_t in = std::min(most_ - 1, static_cast<uint32_t>(sum / 2 * most_));
      if (left_.empty() || in != part) {
        left_.push_back(p);
      } else if (fine_.slots[p].need > fine_.slots[left_.back()].need) {
        left_.back() = p;
      }
      part = in;
    }
  }

  // Slot i ends at the point left_[i] and covers everything behind the point before.
  void JoinSlots() {
    const auto count = static_cast<uint32_t>(left_.size());
    coarse_.ideal = fine_.ideal;
    for (uint32_t i = 0; i < count; ++i) {
      LpSlot& slot = coarse_.slots.emplace_back();
      slot.need = fine_.slots[left_[i]].need;
      for (uint32_t p = (left_[i == 0 ? count - 1 : i - 1] + 1) % points_;; p = (p + 1) % points_) {
        slot.duration += fine_.slots[p].duration;
        if (fine_.slots[p].stretches && !slot.stretches) slot.waiting = fine_.slots[p].waiting;
        slot.stretches = slot.stretches || fine_.slots[p].stretches;
        if (p == left_[i]) break;
      }
    }
    Nanos end = 0;
    for (const LpSlot& slot : coarse_.slots) coarse_.ends.push_back(end += slot.duration);
  }

  // Positions of remaining points, counted on over the iteration's end.
  int64_t AtOrBefore(uint32_t point) const {
    return std::ranges::upper_bound(left_, point) - left_.begin() -
           1;  // -1: the last one of the round before
  }
  int64_t AtOrBehind(uint64_t point) const {
    const auto round = static_cast<int64_t>(point / points_);
    return std::ranges::lower_bound(left_, static_cast<uint32_t>(point % points_)) - left_.begin() +
           round * static_cast<int64_t>(left_.size());
  }

  LpInterval Widened(const LpInterval& fine) const {
    const auto count = static_cast<int64_t>(left_.size());
    const auto to = [&](uint32_t from) {  // the point that `from` leads to, counted on
      return AtOrBehind(fine.before > from ? fine.before : uint64_t{fine.before} + points_);
    };
    const auto index = [count](int64_t position) {
      return static_cast<uint32_t>((position % count + count) % count);
    };
    LpInterval wide = fine;
    wide.after = index(AtOrBefore(fine.after));
    wide.before = index(to(fine.after));
    wide.away_over_a_round = to(fine.after) - AtOrBefore(fine.after) > count;
    if (fine.never_dirty) return wide;
    wide.release = index(AtOrBefore(fine.release));
    wide.kept_over_a_round = to(fine.release) - AtOrBefore(fine.release) > count;
    return wide;
  }

  // Returns whether it is away at no remaining point.
  bool HelpsNowhere(const LpInterval& wide) const {
    return !wide.away_over_a_round && wide.before == (wide.after + 1) % left_.size();
  }

  // Intervals of one content move together. Contents that are used alike are joined.
  void JoinIntervals() {
    using Key = std::vector<std::tuple<uint32_t, uint32_t, uint32_t, bool, bool, bool, bool>>;
    std::map<Key, std::vector<LpInterval>> contents;
    for (size_t begin = 0, end = 0; begin < fine_.intervals.size(); begin = end) {
      Key key;
      std::vector<LpInterval> content;
      bool helps = false;
      for (end = begin; end < fine_.intervals.size() && (end == begin || fine_.intervals[end].place > 0);
           ++end) {
        const LpInterval wide = Widened(fine_.intervals[end]);
        helps = helps || !HelpsNowhere(wide);
        key.emplace_back(wide.release, wide.after, wide.before, wide.returns, wide.never_dirty,
                         wide.away_over_a_round, wide.kept_over_a_round);
        content.push_back(wide);
      }
      if (!helps) continue;
      const auto [found, is_new] = contents.try_emplace(std::move(key), std::move(content));
      if (is_new) continue;
      for (LpInterval& joined : found->second) joined.bytes += fine_.intervals[begin].bytes;
    }
    for (const auto& [key, content] : contents)
      coarse_.intervals.insert(coarse_.intervals.end(), content.begin(), content.end());
  }

  const LpTimeline& fine_;
  const uint32_t points_, most_;
  std::vector<uint32_t> left_;  // remaining points of the fine timeline, ascending
  LpTimeline coarse_;
};

}  // namespace

LpTimeline CoarseTimeline(const LpTimeline& timeline, uint32_t most_slots) {
  if (timeline.slots.size() <= most_slots) return timeline;
  return Coarsener(timeline, most_slots).Make();
}

}  // namespace spillway::policy
