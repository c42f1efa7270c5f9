#include "policy/planner/next_use.h"

#include <unordered_map>

namespace spillway::policy {

MigrationPlan ExpectPeriod(const Trace& trace, LaunchIndex start, uint32_t period) {
  MigrationPlan plan;
  plan.start = start;
  plan.period = period;
  plan.launches.reserve(period);
  for (uint32_t position = 0; position < period; ++position) {
    const LaunchRecord launch = trace.at(start + position);
    plan.launches.push_back({launch.signature, static_cast<uint32_t>(plan.uses.size()),
                             static_cast<uint32_t>(launch.blocks.size())});
    for (const TraceBlock block : launch.blocks) plan.uses.push_back({block, 0});
  }
  // Backwards, twice: the first round finds each block's first use of the period, which is the next use of
  // its last.
  std::unordered_map<TraceBlock, uint32_t> next;
  for (int round = 1; round >= 0; --round) {
    for (uint32_t position = period; position-- > 0;) {
      const ExpectedLaunch& launch = plan.launches[position];
      const auto first = plan.uses.begin() + launch.first_use;
      for (auto use = first; use != first + launch.use_count; ++use) {
        if (round == 0) use->next_position = next[use->block];
      }
      for (auto use = first; use != first + launch.use_count; ++use)
        next[use->block] = position + round * period;
    }
  }
  return plan;
}

}  // namespace spillway::policy
