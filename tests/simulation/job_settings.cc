#include "tests/simulation/job_settings.h"

#include <algorithm>
#include <string>

namespace spillway::simulation {

JobSettings JobSettings::Draw(Random* random, const WorldSettings& world, int operations) {
  JobSettings settings;
  settings.threads = 1 + static_cast<int>(random->Below(3));
  settings.streams =
      random->OneIn(4) ? 3 + static_cast<int>(random->Below(6)) : 1 + static_cast<int>(random->Below(3));
  settings.operations = operations;
  settings.most_block = 1 + random->Below(static_cast<uint32_t>(world.target_chunks / 4));
  settings.most_blocks = random->OneIn(2) ? 24 : 2 + random->Below(10);
  settings.seek_leaving_one_in = random->OneIn(2) ? 0 : 1 + random->Below(4);
  settings.plan_one_in = random->OneIn(3) ? 20 + random->Below(200) : 0;
  settings.evict_one_in = random->OneIn(3) ? 1 + random->Below(6) : 0;
  settings.disk_faults = world.disk_slots > 0 && random->OneIn(8);
  settings.chunk_faults = random->OneIn(12);
  settings.poison = random->OneIn(16);
  settings.wait_limit = world.wait_limit_nanos > 0;
  settings.caps = random->OneIn(4);
  const bool pauses = !world.soft || random->OneIn(3);
  settings.pause_one_in = pauses && random->OneIn(3) ? 15 + random->Below(60) : 0;
  settings.outside_pauses = pauses && random->OneIn(4);
  settings.idle = pauses && world.shared && random->OneIn(2);
  settings.signals = settings.outside_pauses && random->OneIn(3);
  settings.most_set = std::max<uint64_t>(settings.most_block, world.target_chunks / 4);
  settings.large_sets = world.reach && random->OneIn(2);
  settings.hides = world.soft && !settings.Pauses();
  if (settings.large_sets) {
    settings.most_block =
        1 + random->Below(static_cast<uint32_t>(world.target_chunks + world.host_buffers / 4));
    settings.most_set = std::max(settings.most_block, world.target_chunks + world.host_buffers / 3);
  }
  return settings;
}

std::string JobSettings::Describe() const {
  return std::to_string(threads) + " threads of " + std::to_string(streams) + " streams, " +
         std::to_string(operations) + " operations, sets to " + std::to_string(most_set) +
         " chunks, blocks to " + std::to_string(most_block) + ", at most " + std::to_string(most_blocks) +
         " of a thread, seeks leaving " + std::to_string(seek_leaving_one_in) + ", plans " +
         std::to_string(plan_one_in) + ", evicts " + std::to_string(evict_one_in) +
         (disk_faults ? ", disk faults" : "") + (chunk_faults ? ", chunk faults" : "") +
         (caps ? ", limits itself" : "") +
         (pause_one_in != 0 ? ", pauses " + std::to_string(pause_one_in) : "") +
         (outside_pauses ? ", paused from outside" : "") + (idle ? ", idle" : "") +
         (signals ? ", signals" : "") + (hides ? ", hides uses" : "") + (poison ? ", device error" : "");
}

void JobCounts::Add(const JobCounts& other) {
  operations += other.operations;
  launches += other.launches;
  refused_launches += other.refused_launches;
  refused_allocations += other.refused_allocations;
  evictions += other.evictions;
  cancelled += other.cancelled;
  faults += other.faults;
  clean_drops += other.clean_drops;
  early_copies += other.early_copies;
  disk_bytes += other.disk_bytes;
  pauses += other.pauses;
  reached_launches += other.reached_launches;
  soft_evictions += other.soft_evictions;
  hidden_uses += other.hidden_uses;
  verified_fetches += other.verified_fetches;
  wrong_arrivals += other.wrong_arrivals;
}

}  // namespace spillway::simulation
