// Coverage of core_model.h: what was taken, added up over runs and printed.

#include <algorithm>
#include <cstdio>
#include <string>

#include "allocator/memory/test_points.h"
#include "tests/allocator/core_model.h"

namespace spillway::allocator {

void Coverage::Add(DeviceResidency& residency) {
  const ResidencyStats stats = residency.Stats();
  prefetches += stats.prefetches;
  prefetches_cancelled += stats.prefetches_cancelled;
  clean_drops += stats.clean_drops;
  hash_mismatches += stats.hash_mismatches;
  early_copies += stats.early_copies;
}

uint64_t Coverage::PrintAndLeast(bool full) const {
  uint64_t least = UINT64_MAX;
  const auto count = [&least](const std::string& what, uint64_t times, bool must = true) {
    std::printf("%10llu  %s\n", static_cast<unsigned long long>(times), what.c_str());
    if (must) least = std::min(least, times);
  };
  for (int from = 0; from < kBlockStates; ++from) {
    for (int to = 0; to < kBlockStates; ++to) {
      const auto a = static_cast<BlockState>(from);
      const auto b = static_cast<BlockState>(to);
      if (!CanTransition(a, b)) continue;
      const bool taken_back = a == BlockState::kFaulting && b == BlockState::kSpilled;
      count(std::string(NameOf(a)) + " -> " + NameOf(b), TallyOf(Tally::kMove, from * kBlockStates + to),
            full || !taken_back);
    }
  }
  static constexpr const char* kPhases[] = {"", "waiting for uses", "copying", "before the commit point"};
  for (int phase = 1; phase <= 3; ++phase)
    count(std::string("cancelled: ") + kPhases[phase], TallyOf(Tally::kCancelled, phase));
  static constexpr const char* kChunks[] = {"free chunks", "chunks created", "chunks remade",
                                            "chunks decommitted", "chunks evicted"};
  for (int i = 0; i < static_cast<int>(ChunkSource::kCount); ++i)
    count(kChunks[i], TallyOf(Tally::kChunks, i));
  static constexpr const char* kPaths[] = {"cached block", "kept address", "new address"};
  for (int i = 0; i < static_cast<int>(AllocationPath::kCount); ++i)
    count(kPaths[i], TallyOf(Tally::kHandedOut, i));
  count("fetched ahead", prefetches);
  count("fetches ahead taken back", prefetches_cancelled, full);
  count("blocks dropped clean", clean_drops);
  count("blocks that had changed since their copy", hash_mismatches);
  count("blocks copied out early", early_copies);
  count("copies to and from the host", host_copies);
  count("launches under pins", pinned_launches);
  count("streams destroyed", streams_destroyed);
  count("frees by another thread", freed_by_others);
  count("pauses from outside", pauses_of_all);
  count("pauses of a region", pauses_of_regions);
  count("long-term pins", pins, false);
  count("disk faults", injected_disk_faults, false);
  count("launches refused under injected failures", refused_launches, false);
  return least;
}

}  // namespace spillway::allocator
