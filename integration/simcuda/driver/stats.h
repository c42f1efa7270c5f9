// Counts of what the driver did: for simcuda_get_stats, and as JSON at exit (SIMCUDA_STATS=FILE).
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_STATS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_STATS_H_

#include <atomic>
#include <cstdint>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {

struct Stats {
  std::atomic<uint64_t> missed_accesses{0};
  std::atomic<uint64_t> misuses{0};
  std::atomic<uint64_t> launches{0};
  std::atomic<uint64_t> copies{0};
  std::atomic<uint64_t> memsets{0};
  std::atomic<uint64_t> copied_bytes[SIMCUDA_DIRECTIONS] = {};
};

Stats& GetStats();

// Writes the file named by the settings, if any. Called at exit and before a loud stop.
void WriteStatsFile();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_STATS_H_
