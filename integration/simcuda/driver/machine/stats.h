// Counts of the driver's work: for simcuda_get_stats, and as JSON at exit (SIMCUDA_STATS=FILE). Streams'
// threads and the job's count, and a signal handler may; no call fails.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_STATS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_STATS_H_

#include <atomic>
#include <cstdint>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {

struct Stats {
  // Counts since the start, or since simcuda_reset_stats. The first two count mistakes of the job
  // (simcuda.h).
  std::atomic<uint64_t> missed_accesses{0};  // of memory that was not mapped
  std::atomic<uint64_t> misuses{0};          // unmaps and frees under queued work, refused copies
  std::atomic<uint64_t> launches{0};
  std::atomic<uint64_t> copies{0};
  std::atomic<uint64_t> memsets{0};
  std::atomic<uint64_t> copied_bytes[SIMCUDA_DIRECTIONS] = {};  // by direction (simcuda.h)
};

Stats& GetStats();

// Writes the file named by the settings, if any, with the memory of each device and the costs of a profile as
// well. Called at exit and before a loud stop. A file that cannot be written is one line on standard error.
void WriteStatsFile();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_STATS_H_
