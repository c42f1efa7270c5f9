#include "policy/cycle.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

namespace spillway::policy {
namespace {

// Farthest-next-use over a period settles within a few repeats; more would not find a cycle that is not
// there.
constexpr int kMostRepeats = 6;

// One walk over the repeats. Times count launches from the start of the first repeat.
class Replay {
 public:
  Replay(const Cycle& cycle, Bytes budget) : cycle_(cycle), budget_(budget), states_(cycle.blocks.size()) {}

  // The next repeat; the absences that it decided on. False when a launch does not fit.
  bool RunPeriod(std::vector<Absence>* absences) {
    absences->clear();
    for (uint32_t position = 0; position < cycle_.period; ++position, ++now_) {
      if (!Launch(position, absences)) return false;
    }
    std::ranges::sort(*absences);
    return true;
  }

 private:
  struct State {
    bool resident = false;
    uint64_t leaves_order = 0;  // time of its next use; kGone when it is freed before
    uint64_t last_use = 0;
    uint64_t until = 0;
    bool freed = false;  // before the next use
  };
  static constexpr uint64_t kGone = ~uint64_t{0};

  bool Launch(uint32_t position, std::vector<Absence>* absences) {
    FreeGone();
    const auto uses =
        std::span(cycle_.uses)
            .subspan(cycle_.first_use[position], cycle_.first_use[position + 1] - cycle_.first_use[position]);
    Bytes needed = 0;
    for (const CycleUse& use : uses) {
      State& state = states_[use.block];
      if (state.resident) {
        candidates_.erase({state.leaves_order, use.block});
      } else {
        needed += cycle_.blocks[use.block].bytes;
      }
    }
    while (resident_ + needed > budget_) {
      if (candidates_.empty()) return false;
      Evict(candidates_.rbegin()->second, absences);
    }
    for (const CycleUse& use : uses) Touch(use, position);
    return true;
  }

  void FreeGone() {
    while (!frees_.empty() && frees_.begin()->first <= now_) {
      const uint32_t block = frees_.begin()->second;
      frees_.erase(frees_.begin());
      State& state = states_[block];
      if (!state.resident) continue;
      candidates_.erase({state.leaves_order, block});
      state.resident = false;
      resident_ -= cycle_.blocks[block].bytes;
    }
  }

  void Evict(uint32_t block, std::vector<Absence>* absences) {
    State& state = states_[block];
    candidates_.erase({state.leaves_order, block});
    state.resident = false;
    resident_ -= cycle_.blocks[block].bytes;
    const uint64_t base = state.last_use / cycle_.period * cycle_.period;
    absences->push_back({block, static_cast<uint32_t>(state.last_use - base),
                         static_cast<uint32_t>(state.until - base), !state.freed});
  }

  void Touch(const CycleUse& use, uint32_t position) {
    State& state = states_[use.block];
    if (!state.resident) resident_ += cycle_.blocks[use.block].bytes;
    state.resident = true;
    state.last_use = now_;
    state.freed = use.gone_at != 0;
    state.until = now_ - position + (state.freed ? use.gone_at : use.next_use);
    state.leaves_order = state.freed ? kGone : state.until;
    candidates_.insert({state.leaves_order, use.block});
    if (state.freed) frees_.insert({state.until, use.block});
  }

  const Cycle& cycle_;
  const Bytes budget_;
  std::vector<State> states_;
  std::set<std::pair<uint64_t, uint32_t>> candidates_;  // resident blocks by time of next use
  std::set<std::pair<uint64_t, uint32_t>> frees_;       // by time
  Bytes resident_ = 0;
  uint64_t now_ = 0;
};

}  // namespace

namespace {

using BlockIndex = std::unordered_map<TraceBlock, uint32_t>;
using BlockSets = std::vector<std::vector<uint32_t>>;  // per position, indices into Cycle::blocks

// More launches ahead are not looked at: no host queues more.
constexpr uint32_t kMostLaunchesAhead = 256;

// What each launch names, with the blocks in order of first mention.
BlockSets SetsOf(const Trace& trace, LaunchIndex start, const BlockSizes& sizes, BlockIndex* index, Cycle* cycle) {
  BlockSets sets(cycle->period);
  for (uint32_t position = 0; position < cycle->period; ++position) {
    for (const TraceBlock block : trace.at(start + position).blocks) {
      const auto [it, is_new] = index->try_emplace(block, static_cast<uint32_t>(cycle->blocks.size()));
      if (is_new) {
        const auto size = sizes.find(block);
        cycle->blocks.push_back({block, size == sizes.end() ? 0 : size->second});
      }
      sets[position].push_back(it->second);
    }
  }
  return sets;
}

// Blocks that begin or end a life before the launch at each position: what stands on the other side is another block.
std::vector<std::set<uint32_t>> RebornAt(const Trace& trace, LaunchIndex start, uint32_t period,
                                         const BlockIndex& index) {
  std::vector<std::set<uint32_t>> reborn(period);
  for (const BlockEvent& event : trace.events()) {
    if (event.before < start || event.before >= start + period) continue;
    const auto it = index.find(event.block);
    if (it != index.end()) reborn[event.before - start].insert(it->second);
  }
  return reborn;
}

// Sets that grow over their neighbours in the cycle, as far as the room at each position allows.
class WidenedSets {
 public:
  WidenedSets(const Cycle& cycle, const BlockSets& sets, const std::vector<std::set<uint32_t>>& reborn, Bytes room)
      : cycle_(cycle), reborn_(reborn), room_(room), sets_(sets), widened_(sets), bytes_(cycle.period, 0) {
    for (uint32_t position = 0; position < cycle.period; ++position) {
      for (const uint32_t block : sets[position]) bytes_[position] += cycle.blocks[block].bytes;
    }
    own_bytes_ = bytes_;
  }

  // One launch further back for every set: for as long as `least` is not reached, or host run-ahead may.
  void GoBack(uint32_t least, Bytes run_ahead_bytes) {
    std::vector<std::vector<uint32_t>> alive = sets_;
    std::vector<Bytes> sum = own_bytes_;
    for (uint32_t ahead = 1; ahead < std::min(cycle_.period, kMostLaunchesAhead); ++ahead) {
      bool any = false;
      for (uint32_t position = 0; position < cycle_.period; ++position) {
        if (alive[position].empty()) continue;
        const uint32_t from = (position + cycle_.period - ahead + 1) % cycle_.period;
        const uint32_t to = (position + cycle_.period - ahead) % cycle_.period;
        sum[position] += own_bytes_[to];
        if (ahead > least && sum[position] > run_ahead_bytes) alive[position].clear();
        std::erase_if(alive[position],
                      [&](uint32_t block) { return reborn_[from].contains(block) || !Add(to, block); });
        any |= !alive[position].empty();
      }
      if (!any) return;
    }
  }

  // `launches` further on for every set.
  void GoOn(uint32_t launches) {
    for (uint32_t position = 0; position < cycle_.period; ++position) {
      for (const uint32_t block : sets_[position]) {
        for (uint32_t on = 1; on <= std::min(launches, cycle_.period - 1); ++on) {
          const uint32_t to = (position + on) % cycle_.period;
          if (reborn_[to].contains(block) || !Add(to, block)) break;
        }
      }
    }
  }

  BlockSets Take() { return std::move(widened_); }

 private:
  // Whether the block counts as used at that position now.
  bool Add(uint32_t position, uint32_t block) {
    if (std::ranges::find(widened_[position], block) != widened_[position].end()) return true;
    if (bytes_[position] + cycle_.blocks[block].bytes > room_) return false;
    bytes_[position] += cycle_.blocks[block].bytes;
    widened_[position].push_back(block);
    return true;
  }

  const Cycle& cycle_;
  const std::vector<std::set<uint32_t>>& reborn_;
  const Bytes room_;
  const BlockSets& sets_;
  BlockSets widened_;
  std::vector<Bytes> own_bytes_;
  std::vector<Bytes> bytes_;
};

}  // namespace

Cycle MakeCycle(const Trace& trace, LaunchIndex start, uint32_t period, const BlockSizes& sizes,
                const Widening& widening) {
  Cycle cycle;
  cycle.period = period;
  BlockIndex index;
  BlockSets sets = SetsOf(trace, start, sizes, &index, &cycle);
  if (widening.room_bytes > 0) {
    const std::vector<std::set<uint32_t>> reborn = RebornAt(trace, start, period, index);
    WidenedSets widened(cycle, sets, reborn, widening.room_bytes);
    widened.GoBack(widening.launches_in, widening.run_ahead_bytes);
    widened.GoOn(widening.launches_out);
    sets = widened.Take();
  }
  for (const std::vector<uint32_t>& set : sets) {
    cycle.first_use.push_back(static_cast<uint32_t>(cycle.uses.size()));
    for (const uint32_t block : set) cycle.uses.push_back({block, 0, 0});
  }
  cycle.first_use.push_back(static_cast<uint32_t>(cycle.uses.size()));

  // Frees by position 1..period: a free after the last launch comes before the next period's first.
  std::vector<std::vector<uint32_t>> frees(period + 1);
  for (const BlockEvent& event : trace.events()) {
    if (event.allocated() || event.before <= start || event.before > start + period) continue;
    const auto it = index.find(event.block);
    if (it != index.end()) frees[event.before - start].push_back(it->second);
  }

  // Backwards, twice: what follows a block's last use lies in the next repeat.
  std::vector<uint32_t> next_use(cycle.blocks.size(), 0);
  std::vector<uint32_t> next_free(cycle.blocks.size(), 0);  // 0: none before the next use
  for (int repeat = 1; repeat >= 0; --repeat) {
    for (uint32_t position = period; position-- > 0;) {
      for (const uint32_t block : frees[position + 1]) next_free[block] = position + 1 + repeat * period;
      for (uint32_t i = cycle.first_use[position]; i < cycle.first_use[position + 1]; ++i) {
        CycleUse& use = cycle.uses[i];
        use.next_use = next_use[use.block];
        use.gone_at = next_free[use.block];
        next_use[use.block] = position + repeat * period;
        next_free[use.block] = 0;
      }
    }
  }
  return cycle;
}

bool ChooseAbsences(const Cycle& cycle, Bytes budget, std::vector<Absence>* absences, bool* steady) {
  Replay replay(cycle, budget);
  std::vector<Absence> before;
  *steady = false;
  for (int repeat = 0; repeat < kMostRepeats && !*steady; ++repeat) {
    before = std::move(*absences);
    if (!replay.RunPeriod(absences)) return false;
    *steady = repeat >= 2 && *absences == before;
  }
  return true;
}

std::vector<int64_t> OccupancyOf(const Cycle& cycle, const std::vector<Absence>& absences) {
  // As differences over two periods, folded into one: a stretch may pass the end.
  std::vector<int64_t> change(2 * size_t{cycle.period} + 1, 0);
  const auto add = [&](uint32_t begin, uint32_t end, int64_t bytes) {
    change[begin] += bytes;
    change[end] -= bytes;
  };
  for (uint32_t position = 0; position < cycle.period; ++position) {
    for (uint32_t i = cycle.first_use[position]; i < cycle.first_use[position + 1]; ++i) {
      const CycleUse& use = cycle.uses[i];
      add(position, use.gone_at != 0 ? use.gone_at : use.next_use, cycle.blocks[use.block].bytes);
    }
  }
  for (const Absence& absence : absences) {
    add(absence.last_use + 1, absence.until, -static_cast<int64_t>(cycle.blocks[absence.block].bytes));
  }
  std::vector<int64_t> occupancy(cycle.period, 0);
  int64_t now = 0;
  for (uint32_t place = 0; place < 2 * cycle.period; ++place) {
    now += change[place];
    occupancy[place % cycle.period] += now;
  }
  return occupancy;
}

}  // namespace spillway::policy
