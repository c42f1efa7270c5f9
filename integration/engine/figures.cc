#include "integration/engine/figures.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_format.h"
#include "allocator/residency/residency.h"
#include "integration/engine/directory_figures.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

struct Counter {
  const char* key;
  uint64_t ResidencyStats::*member;
};

// Bytes and counts of the metrics file, by name. "peak_bytes" is the peak of all driver allocations, ours
// included.
constexpr Counter kCounters[] = {
    {"budget_bytes", &ResidencyStats::budget_bytes},
    {"budget_in_force_bytes", &ResidencyStats::budget_in_force_bytes},
    {"share_bytes", &ResidencyStats::share_bytes},
    {"idle_pauses", &ResidencyStats::idle_pauses},
    {"peak_bytes", &ResidencyStats::peak_device_bytes},
    {"live_bytes", &ResidencyStats::live_bytes},
    {"requested_bytes", &ResidencyStats::requested_bytes},
    {"peak_live_bytes", &ResidencyStats::peak_live_bytes},
    {"peak_requested_bytes", &ResidencyStats::peak_requested_bytes},
    {"resident_bytes", &ResidencyStats::resident_bytes},
    {"cached_bytes", &ResidencyStats::cached_bytes},
    {"chunk_bytes", &ResidencyStats::chunk_bytes},
    {"peak_chunk_bytes", &ResidencyStats::peak_chunk_bytes},
    {"others_bytes", &ResidencyStats::external_bytes},
    {"host_tier_bytes", &ResidencyStats::host_tier_bytes},
    {"disk_tier_bytes", &ResidencyStats::disk_tier_bytes},
    {"spilled_bytes", &ResidencyStats::spilled_bytes},
    {"host_spilled_bytes", &ResidencyStats::host_spilled_bytes},
    {"disk_spilled_bytes", &ResidencyStats::disk_spilled_bytes},
    {"fetched_bytes", &ResidencyStats::fetched_bytes},
    {"host_fetched_bytes", &ResidencyStats::host_fetched_bytes},
    {"disk_fetched_bytes", &ResidencyStats::disk_fetched_bytes},
    {"prefetched_bytes", &ResidencyStats::prefetched_bytes},
    {"prefetch_in_time_bytes", &ResidencyStats::prefetch_in_time_bytes},
    {"in_time_bytes", &ResidencyStats::in_time_bytes},
    {"launches", &ResidencyStats::launches},
    {"slow_launches", &ResidencyStats::slow_launches},
    {"evictions", &ResidencyStats::evictions},
    {"evictions_cancelled", &ResidencyStats::evictions_cancelled},
    {"faults", &ResidencyStats::faults},
    {"prefetches", &ResidencyStats::prefetches},
    {"prefetches_cancelled", &ResidencyStats::prefetches_cancelled},
    {"clean_drops", &ResidencyStats::clean_drops},
    {"clean_drop_bytes", &ResidencyStats::clean_drop_bytes},
    {"hash_mismatches", &ResidencyStats::hash_mismatches},
    {"early_copies", &ResidencyStats::early_copies},
    {"reached_launches", &ResidencyStats::reached_launches},
    {"reached_bytes", &ResidencyStats::reached_bytes},
    {"reached_now_bytes", &ResidencyStats::reached_now_bytes},
    {"soft_evictions", &ResidencyStats::soft_evictions},
    {"soft_writes", &ResidencyStats::soft_writes},
    {"soft_now_bytes", &ResidencyStats::soft_now_bytes},
    {"verified_evictions", &ResidencyStats::verified_evictions},
    {"unseen_writes", &ResidencyStats::unseen_writes},
    {"handles_remade", &ResidencyStats::handles_remade},
    {"held_bytes", &ResidencyStats::pinned_bytes},
    {"largest_set_bytes", &ResidencyStats::largest_set_bytes},
};

constexpr Counter kStalls[] = {
    {"room", &ResidencyStats::stall_chunk_nanos},
    {"disk", &ResidencyStats::stall_disk_nanos},
};

// Time that the GPU had nothing to do, by cause.
constexpr Counter kLost[] = {
    {"room", &ResidencyStats::lost_chunk_nanos},
    {"read", &ResidencyStats::lost_read_nanos},
    {"run_ahead", &ResidencyStats::lost_run_ahead_nanos},
};

// Of one device; the sum of devices has none.
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

nlohmann::ordered_json LostJson(const ResidencyStats& stats) {
  nlohmann::ordered_json lost;
  for (const Counter& cause : kLost) lost[cause.key] = SecondsOf(stats.*cause.member);
  return lost;
}

// What the link was measured to reach; empty where it never was.
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
  for (const Counter& counter : kCounters) json[counter.key] = stats.*counter.member;
  nlohmann::ordered_json stalls;
  for (const Counter& stall : kStalls) stalls[stall.key] = SecondsOf(stats.*stall.member);
  json["stall_seconds"] = stalls;
  json["stall_seconds_total"] = StallSeconds(stats);
  json["held_back_seconds"] = SecondsOf(stats.throttled_nanos);
  json["lost_seconds"] = LostJson(stats);
  nlohmann::ordered_json pinned;
  for (int reason = 0; reason < static_cast<int>(allocator::PinReason::kCount); ++reason) {
    pinned[NameOf(static_cast<allocator::PinReason>(reason))] =
        stats.pinned_bytes_by_reason[static_cast<size_t>(reason)];
  }
  json["held_bytes_by_reason"] = pinned;
  return json;
}

// The iteration of a device: only what is known of it.
nlohmann::ordered_json IterationJson(const DeviceFigures& device) {
  nlohmann::ordered_json json;
  const SteadyIterations& steady = device.steady;
  const IterationForecast& forecast = steady.forecast;
  const auto add = [&json](const char* key, double value) {
    if (value > 0) json[key] = value;
  };
  add("launches", steady.launches);
  add("steps", steady.iterations);
  add("seconds", steady.iteration_seconds);
  add("ideal_seconds", forecast.ideal_seconds);
  add("bound_seconds", forecast.bound_seconds);
  add("plan_seconds", forecast.plan_seconds);
  if (const auto percent = PercentOfBound(device)) json["percent_of_bound"] = *percent;
  if (steady.iterations == 0) return json;
  for (const Counter& counter : kCounters) {
    const std::string_view key = counter.key;
    const bool moved = key.ends_with("spilled_bytes") || key.ends_with("fetched_bytes");
    if (moved || key == "prefetched_bytes" || key.ends_with("in_time_bytes")) {
      json[counter.key] = steady.per_iteration.*counter.member;
    }
  }
  nlohmann::ordered_json stalls;
  for (const Counter& stall : kStalls) stalls[stall.key] = SecondsOf(steady.per_iteration.*stall.member);
  json["stall_seconds"] = stalls;
  json["held_back_seconds"] = SecondsOf(steady.per_iteration.throttled_nanos);
  json["lost_seconds"] = LostJson(steady.per_iteration);
  return json;
}

nlohmann::ordered_json WaitsJson(const Figures& figures) {
  nlohmann::ordered_json json;
  for (size_t kind = 0; kind < figures.waits.size(); ++kind) {
    const os::WaitList::Totals& totals = figures.waits[kind];
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
  json["step_launches"] = iteration.launches;
  json["peak_bytes"] = iteration.peak_bytes;
  json["others_bytes"] = iteration.external_bytes;
  json["largest_set_bytes"] = iteration.largest_set_bytes;
  json["budgets"] = nlohmann::ordered_json::array();
  for (const ObservedBudget& budget : iteration.budgets) {
    nlohmann::ordered_json entry;
    entry["percent"] =
        budget.percent == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(budget.percent);
    entry["budget_bytes"] = budget.budget_bytes;
    entry["possible"] = budget.traffic.possible;
    entry["least_fetched_bytes_per_step"] = budget.traffic.least_fetched_bytes;
    entry["whole_block_fetched_bytes_per_step"] = budget.traffic.whole_block_fetched_bytes;
    json["budgets"].push_back(entry);
  }
  return json;
}

}  // namespace

double StallSeconds(const ResidencyStats& stats) {
  double total = 0;
  for (const Counter& stall : kStalls) total += SecondsOf(stats.*stall.member);
  return total;
}

ResidencyStats Total(const std::vector<DeviceFigures>& devices) {
  ResidencyStats total;
  for (const DeviceFigures& device : devices) {
    for (const Counter& counter : kCounters) total.*counter.member += device.stats.*counter.member;
    for (const Counter& stall : kStalls) total.*stall.member += device.stats.*stall.member;
    for (const Counter& lost : kLost) total.*lost.member += device.stats.*lost.member;
    total.driver_lacks_bytes += device.stats.driver_lacks_bytes;
    for (size_t i = 0; i < total.pinned_bytes_by_reason.size(); ++i) {
      total.pinned_bytes_by_reason[i] += device.stats.pinned_bytes_by_reason[i];
    }
  }
  return total;
}

std::string MetricsJson(const Figures& figures) {
  nlohmann::ordered_json json;
  json["version"] = SPILLWAY_VERSION_TEXT;
  json["pid"] = ::getpid();
  json["seconds"] = figures.seconds;
  json["steps_per_second"] = figures.iterations_per_second;
  json.update(ToJson(Total(figures.devices)));
  json["ssd_written_bytes"] = figures.disk.written_bytes;
  json["ssd_read_bytes"] = figures.disk.read_bytes;
  if (figures.disk.write_budget_bytes > 0) {
    json["write_budget_bytes"] = figures.disk.write_budget_bytes;
    json["write_budget_left_bytes"] = figures.disk.write_budget_left_bytes;
  }
  if (figures.pause.pauses > 0) json["pause"] = PauseJson(figures.pause);
  json["evictions_ended"] = figures.evictions_ended;
  json["newer_calls"] = figures.newer_calls;
  json["host_room_bytes"] = figures.host_capacity_bytes;
  json["disk_room_bytes"] = figures.disk.capacity_bytes;
  json["directories"] = nlohmann::ordered_json::array();
  for (const io::DirectoryStats& directory : figures.disk.directories)
    json["directories"].push_back(DirectoryJson(directory, figures.seconds));
  json["unknown_kernel_launches"] = figures.unknown_launches;
  json["waits"] = WaitsJson(figures);
  json["devices"] = nlohmann::ordered_json::array();
  for (const DeviceFigures& device : figures.devices) {
    nlohmann::ordered_json entry;
    entry["device"] = device.device;
    entry.update(ToJson(device.stats));
    for (const auto& [key, member] : kRates) {
      if (device.stats.*member > 0) entry["bytes_per_second"][key] = device.stats.*member;
    }
    if (const auto link = LinkJson(device.stats); !link.empty()) entry["link"] = link;
    entry["plans"] = device.plans;
    entry["plan_departures"] = device.plan_departures;
    entry["plan_period_launches"] = device.plan_iteration_launches;
    entry["plan_readoptions"] = device.plan_readoptions;
    entry["plan_improvements"] = device.plan_improvements;
    entry["plan_accesses"] = device.plan_accesses;
    entry["plan_accesses_known"] = device.plan_accesses_known;
    entry["plan_paths"] = device.plan_sequences;
    entry["followed_launches"] = device.followed_launches;
    entry["step_marks"] = device.iteration_marks;
    if (const auto iteration = IterationJson(device); !iteration.empty()) entry["step"] = iteration;
    if (device.observed) entry["observed"] = ToJson(*device.observed);
    json["devices"].push_back(entry);
  }
  return json.dump(2) + "\n";
}

}  // namespace spillway::integration
