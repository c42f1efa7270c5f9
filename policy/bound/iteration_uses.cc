#include "policy/bound/iteration_uses.h"

#include <algorithm>
#include <unordered_map>

namespace spillway::policy {
namespace {

using BlockIndex = std::unordered_map<TraceBlock, uint32_t>;
using BlockSets = std::vector<std::vector<uint32_t>>;  // per position, indices into IterationUses::blocks

Bytes SizeOr(const BlockSizes& sizes, TraceBlock block, Bytes other) {
  const auto size = sizes.find(block);
  return size == sizes.end() ? other : size->second;
}

// Returns the blocks of each launch; `iteration` gets the blocks in order of first mention.
BlockSets SetsOf(const Trace& trace, LaunchIndex start, const BlockSizes& sizes, const BlockSizes& copied,
                 BlockIndex* index, IterationUses* iteration) {
  BlockSets sets(iteration->launches);
  for (uint32_t position = 0; position < iteration->launches; ++position) {
    for (const TraceBlock block : trace.at(start + position).blocks) {
      const auto [it, is_new] = index->try_emplace(block, static_cast<uint32_t>(iteration->blocks.size()));
      if (is_new) {
        const Bytes bytes = SizeOr(sizes, block, 0);
        iteration->blocks.push_back({block, bytes, std::min(bytes, SizeOr(copied, block, bytes))});
      }
      sets[position].push_back(it->second);
    }
  }
  return sets;
}

}  // namespace

IterationUses FindIterationUses(const Trace& trace, LaunchIndex start, uint32_t iteration_launches,
                                const BlockSizes& sizes, const BlockSizes& copied) {
  IterationUses iteration;
  iteration.launches = iteration_launches;
  BlockIndex index;
  const BlockSets sets = SetsOf(trace, start, sizes, copied, &index, &iteration);
  for (const std::vector<uint32_t>& set : sets) {
    iteration.first_use.push_back(static_cast<uint32_t>(iteration.uses.size()));
    for (const uint32_t block : set) iteration.uses.push_back({block, 0, 0});
  }
  iteration.first_use.push_back(static_cast<uint32_t>(iteration.uses.size()));

  // Frees by position, 1 to the number of launches: a free after the last launch comes before the next
  // iteration's first.
  std::vector<std::vector<uint32_t>> frees(iteration_launches + 1);
  for (const BlockEvent& event : trace.events()) {
    if (event.allocated() || event.before <= start || event.before > start + iteration_launches) continue;
    const auto it = index.find(event.block);
    if (it != index.end()) frees[event.before - start].push_back(it->second);
  }

  // The walk goes backwards, twice, since the use or free after a block's last use lies in the next repeat.
  std::vector<uint32_t> next_use(iteration.blocks.size(), 0);
  std::vector<uint32_t> next_free(iteration.blocks.size(), 0);  // 0: none before the next use
  for (int repeat = 1; repeat >= 0; --repeat) {
    for (uint32_t position = iteration_launches; position-- > 0;) {
      for (const uint32_t block : frees[position + 1])
        next_free[block] = position + 1 + repeat * iteration_launches;
      for (uint32_t i = iteration.first_use[position]; i < iteration.first_use[position + 1]; ++i) {
        IterationUse& use = iteration.uses[i];
        use.next_use = next_use[use.block];
        use.gone_at = next_free[use.block];
        next_use[use.block] = position + repeat * iteration_launches;
        next_free[use.block] = 0;
      }
    }
  }
  return iteration;
}

}  // namespace spillway::policy
