#include "policy/bound/iteration_uses.h"

#include <unordered_map>

namespace spillway::policy {
namespace {

using BlockIndex = std::unordered_map<TraceBlock, uint32_t>;
using BlockSets = std::vector<std::vector<uint32_t>>;  // per position, indices into Cycle::blocks

// What each launch names, with the blocks in order of first mention.
BlockSets SetsOf(const Trace& trace, LaunchIndex start, const BlockSizes& sizes, BlockIndex* index,
                 Cycle* cycle) {
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

}  // namespace

Cycle MakeCycle(const Trace& trace, LaunchIndex start, uint32_t period, const BlockSizes& sizes) {
  Cycle cycle;
  cycle.period = period;
  BlockIndex index;
  const BlockSets sets = SetsOf(trace, start, sizes, &index, &cycle);
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

}  // namespace spillway::policy
