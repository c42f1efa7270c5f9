// PauseMetrics: the pauses of a job since its first block, summed up, and as JSON for programs; the JSON of
// one pause, too. JobPause counts; metrics and the job's socket report. Pure functions: any thread, nothing
// fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_PAUSE_METRICS_H_
#define SPILLWAY_INTEGRATION_REPORT_PAUSE_METRICS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "allocator/residency/state/pause.h"

namespace spillway::integration {

// Bytes are those of whole chunks.
struct PauseMetrics {
  uint64_t pauses = 0;  // by the job and from outside, of everything or of a tag
  uint64_t clean_bytes = 0, host_bytes = 0, disk_bytes = 0, dropped_bytes = 0;  // that left, by how
  uint64_t pausing_nanos = 0;                                                   // until all had left
  uint64_t outside_nanos = 0;                                                   // paused from outside
  bool paused_now = false;                                                      // from outside

  void Add(const allocator::PauseStats& stats);
};

// Returns an object with the keys of docs/metrics.md.
nlohmann::ordered_json PauseJson(const PauseMetrics& pause);
// Returns the results of one pause.
nlohmann::ordered_json PauseJson(const allocator::PauseStats& stats);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_PAUSE_METRICS_H_
