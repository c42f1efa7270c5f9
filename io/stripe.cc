#include "io/stripe.h"

#include <algorithm>

namespace spillway::io {

std::optional<size_t> PickDirectory(std::span<const DirectoryLoad> loads, uint64_t slot_bytes) {
  double fastest = 0;
  for (const DirectoryLoad& load : loads) fastest = std::max(fastest, load.bytes_per_second);
  if (fastest <= 0) fastest = 1;
  std::optional<size_t> best;
  double best_time = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    const DirectoryLoad& load = loads[i];
    if (!load.usable || load.free_slots == 0) continue;
    const double speed = load.bytes_per_second > 0 ? load.bytes_per_second : fastest;
    const double time = static_cast<double>(load.queued_bytes + slot_bytes) / speed;
    if (!best || time < best_time) {
      best = i;
      best_time = time;
    }
  }
  return best;
}

}  // namespace spillway::io
