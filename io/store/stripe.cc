#include "io/store/stripe.h"

#include <algorithm>

namespace spillway::io {
namespace {

constexpr uint64_t kTryAgainBytes = 64 << 20;

}  // namespace

std::optional<size_t> PickDirectory(std::span<const DirectoryLoad> loads, uint64_t slot_bytes) {
  double fastest_write = 0;
  double fastest_read = 0;
  for (const DirectoryLoad& load : loads) {
    fastest_write = std::max(fastest_write, load.write_bytes_per_second);
    fastest_read = std::max(fastest_read, load.read_bytes_per_second);
  }
  // All directories are alike when no speed is known; the bytes decide then.
  if (fastest_write <= 0) fastest_write = 1;
  std::optional<size_t> best;
  double best_seconds = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    const DirectoryLoad& load = loads[i];
    if (!load.usable || load.free_slots == 0) continue;
    if (load.queued_write_bytes == 0 && load.passed_over_bytes >= kTryAgainBytes) return i;
    const double write = load.write_bytes_per_second > 0 ? load.write_bytes_per_second : fastest_write;
    const double read = load.read_bytes_per_second > 0 ? load.read_bytes_per_second : fastest_read;
    const auto to_write = static_cast<double>(load.queued_write_bytes + slot_bytes);
    const double to_read = to_write + static_cast<double>(load.queued_read_bytes);
    const double seconds = std::max(to_write / write, read > 0 ? to_read / read : 0);
    if (!best || seconds < best_seconds) {
      best = i;
      best_seconds = seconds;
    }
  }
  return best;
}

}  // namespace spillway::io
