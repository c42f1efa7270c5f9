#include "integration/report/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_format.h"
#include "allocator/residency/residency.h"
#include "integration/report/directory_metrics.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

// The rates of one device; the sum of devices has none.
constexpr struct {
  const char* key;
  double ResidencyStats::*member;
} kRates[] = {
    {"host_out", &ResidencyStats::host_out_rate},
    {"disk_out", &ResidencyStats::disk_out_rate},
    {"host_in", &ResidencyStats::host_in_rate},
    {"disk_in", &ResidencyStats::disk_in_rate},
    {"host_out_both", &ResidencyStats::host_out_both_rate},
    {"host_in_both", &ResidencyStats::host_in_both_rate},
};

// Adds a row's metric under its key, which may be one of an inner object.
void Put(const FigureRow& row, const ResidencyStats& stats, nlohmann::ordered_json* json) {
  const size_t dot = row.key.find('.');
  nlohmann::ordered_json& at = dot == row.key.npos ? *json : (*json)[std::string(row.key.substr(0, dot))];
  nlohmann::ordered_json& value = at[std::string(dot == row.key.npos ? row.key : row.key.substr(dot + 1))];
  if (row.unit == RowUnit::kNanos)
    value = SecondsOf(stats.*row.member);
  else
    value = stats.*row.member;
}

// The measured rates of the link; empty where it never was measured.
nlohmann::ordered_json LinkJson(const ResidencyStats& stats) {
  nlohmann::ordered_json link;
  if (stats.link_measurements + stats.link_measurements_dropped == 0) return link;
  if (stats.link) {
    link["in"] = stats.link->alone.in;
    link["out"] = stats.link->alone.out;
    link["in_both"] = stats.link->both.in;
    link["out_both"] = stats.link->both.out;
  }
  link["measurements"] = stats.link_measurements;
  link["dropped"] = stats.link_measurements_dropped;
  link["seconds"] = SecondsOf(stats.link_measuring_nanos);
  return link;
}

nlohmann::ordered_json ToJson(const ResidencyStats& stats) {
  nlohmann::ordered_json json;
  for (const FigureRow& row : kFigureRows) Put(row, stats, &json);
  json["stall_seconds_total"] = StallSeconds(stats);
  nlohmann::ordered_json pinned;
  for (int reason = 0; reason < static_cast<int>(allocator::PinReason::kCount); ++reason) {
    pinned[NameOf(static_cast<allocator::PinReason>(reason))] =
        stats.pinned_bytes_by_reason[static_cast<size_t>(reason)];
  }
  json["pinned_bytes_by_reason"] = pinned;
  return json;
}

// The iteration of a device: only what is known of it.
nlohmann::ordered_json IterationJson(const DeviceMetrics& device) {
  nlohmann::ordered_json json;
  const SteadyIterations& steady = device.steady;
  const auto add = [&json](const char* key, double value) {
    if (value > 0) json[key] = value;
  };
#define ITERATION_METRIC(key, type, value, metric, help) add(#key, value);
#include "integration/report/job_metrics.def"
  if (const auto percent = PercentOfBound(device)) json["percent_of_bound"] = *percent;
  if (steady.iterations == 0) return json;
  for (const FigureRow& row : kFigureRows) {
    if (row.share == RowShare::kPerIteration) Put(row, steady.per_iteration, &json);
  }
  return json;
}

nlohmann::ordered_json WaitsJson(const Metrics& metrics) {
  nlohmann::ordered_json json;
  for (size_t kind = 0; kind < metrics.waits.size(); ++kind) {
    const os::WaitList::Totals& totals = metrics.waits[kind];
    nlohmann::ordered_json& entry = json[os::NamesOf(static_cast<os::WaitKind>(kind)).key];
    entry["ended"] = totals.ended;
    entry["seconds"] = SecondsOf(totals.nanos);
    entry["now"] = totals.now;
    entry["longest_now_seconds"] = SecondsOf(totals.longest_now_nanos);
  }
  return json;
}

nlohmann::ordered_json ToJson(const ObservedIteration& iteration) {
  nlohmann::ordered_json json;
  json["iteration_launches"] = iteration.launches;
  json["peak_bytes"] = iteration.peak_bytes;
  json["external_bytes"] = iteration.external_bytes;
  json["largest_set_bytes"] = iteration.largest_set_bytes;
  json["budgets"] = nlohmann::ordered_json::array();
  for (const ObservedBudget& budget : iteration.budgets) {
    nlohmann::ordered_json entry;
    entry["percent"] =
        budget.percent == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(budget.percent);
    entry["budget_bytes"] = budget.budget_bytes;
    entry["possible"] = budget.traffic.possible;
    entry["least_fetched_bytes_per_iteration"] = budget.traffic.least_fetched_bytes;
    entry["whole_block_fetched_bytes_per_iteration"] = budget.traffic.whole_block_fetched_bytes;
    json["budgets"].push_back(entry);
  }
  return json;
}

}  // namespace

double StallSeconds(const ResidencyStats& stats) {
  return SecondsOf(stats.stall_chunks_nanos + stats.stall_arrival_nanos);
}

double LostSeconds(const ResidencyStats& stats) {
  return SecondsOf(stats.lost_chunks_nanos + stats.lost_arrival_nanos + stats.lost_run_ahead_nanos);
}

ResidencyStats Total(const std::vector<DeviceMetrics>& devices) {
  ResidencyStats total;
  for (const DeviceMetrics& device : devices) {
    for (const FigureRow& row : kFigureRows) total.*row.member += device.stats.*row.member;
    total.driver_lacks_bytes += device.stats.driver_lacks_bytes;
    for (size_t i = 0; i < total.pinned_bytes_by_reason.size(); ++i) {
      total.pinned_bytes_by_reason[i] += device.stats.pinned_bytes_by_reason[i];
    }
  }
  return total;
}

std::string MetricsJson(const Metrics& metrics) {
  nlohmann::ordered_json json;
  json["version"] = SPILLWAY_VERSION_TEXT;
  json["pid"] = ::getpid();
  json["seconds"] = metrics.seconds;
  json["iterations_per_second"] = metrics.iterations_per_second;
  json.update(ToJson(Total(metrics.devices)));
#define DISK_METRIC(name, ...) json["disk_" #name] = metrics.disk.name;
#define PROCESS_METRIC(name, ...) json[#name] = metrics.name;
#define BUDGET_METRIC(name, ...) \
  if (metrics.disk.write_budget_bytes > 0) json[#name] = metrics.disk.name;
#include "integration/report/job_metrics.def"
  if (metrics.pause.pauses > 0) json["pause"] = PauseJson(metrics.pause);
  json["evictions_ended"] = metrics.evictions_ended;
  json["directories"] = nlohmann::ordered_json::array();
  for (const io::DirectoryStats& directory : metrics.disk.directories)
    json["directories"].push_back(DirectoryJson(directory, metrics.seconds));
  json["waits"] = WaitsJson(metrics);
  json["devices"] = nlohmann::ordered_json::array();
  for (const DeviceMetrics& device : metrics.devices) {
    nlohmann::ordered_json entry;
    entry["device"] = device.device;
    entry.update(ToJson(device.stats));
    for (const auto& [key, member] : kRates) {
      if (device.stats.*member > 0) entry["bytes_per_second"][key] = device.stats.*member;
    }
    if (const auto link = LinkJson(device.stats); !link.empty()) entry["link"] = link;
#define DEVICE_METRIC(name, ...) entry[#name] = device.name;
#include "integration/report/job_metrics.def"
    if (const auto iteration = IterationJson(device); !iteration.empty()) entry["iteration"] = iteration;
    if (device.observed) entry["observed"] = ToJson(*device.observed);
    json["devices"].push_back(entry);
  }
  return json.dump(2) + "\n";
}

}  // namespace spillway::integration
