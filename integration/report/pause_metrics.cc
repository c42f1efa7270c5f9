#include "integration/report/pause_metrics.h"

#include <nlohmann/json.hpp>

#include "integration/report/metric_rows.h"

namespace spillway::integration {

void PauseMetrics::Add(const allocator::PauseStats& stats) {
  ++pauses;
  clean_bytes += stats.clean_bytes;
  host_bytes += stats.host_bytes;
  disk_bytes += stats.disk_bytes;
  dropped_bytes += stats.dropped_bytes;
  pausing_nanos += static_cast<uint64_t>(stats.nanos);
}

nlohmann::ordered_json PauseJson(const PauseMetrics& pause) {
  nlohmann::ordered_json json;
#define PAUSE_METRIC(key, type, value, metric, help) json[#key] = value;
#include "integration/report/job_metrics.def"
  return json;
}

nlohmann::ordered_json PauseJson(const allocator::PauseStats& stats) {
  nlohmann::ordered_json json;
  json["clean_bytes"] = stats.clean_bytes;
  json["host_bytes"] = stats.host_bytes;
  json["disk_bytes"] = stats.disk_bytes;
  json["dropped_bytes"] = stats.dropped_bytes;
  json["unused_bytes"] = stats.unused_bytes;
  json["pinned_bytes"] = stats.pinned_bytes;
  json["failed_bytes"] = stats.failed_bytes;
  json["released_bytes"] = stats.released_bytes;
  json["remaining_bytes"] = stats.remaining_bytes;
  json["seconds"] = SecondsOf(static_cast<uint64_t>(stats.nanos));
  if (!stats.failure.empty()) json["failure"] = stats.failure;
  return json;
}

}  // namespace spillway::integration
