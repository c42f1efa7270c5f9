#include "integration/report/job_log.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;
using os::BytesText;
using os::LogLevel;

std::string PlanText(const DeviceMetrics& before, const DeviceMetrics& now) {
  if (now.plan_readoptions > before.plan_readoptions)
    return absl::StrCat("the job has come back to iterations of ", now.plan_iteration_launches,
                        " launches, whose plan is in force again");
  return absl::StrCat("a plan is in force for iterations of ", now.plan_iteration_launches, " launches");
}

// Returns what was moved since `before`; empty: nothing.
std::string MovedText(const ResidencyStats& before, const ResidencyStats& now, double seconds) {
  const uint64_t out = now.spilled_bytes - before.spilled_bytes,
                 back = now.fetched_bytes - before.fetched_bytes;
  if (out == 0 && back == 0) return "";
  return absl::StrFormat(
      "in %.1f s %s left (%s for the disk) and %s came back (%s from it); %d blocks on demand, %d ahead of "
      "need",
      seconds, BytesText(out), BytesText(now.disk_spilled_bytes - before.disk_spilled_bytes), BytesText(back),
      BytesText(now.disk_fetched_bytes - before.disk_fetched_bytes), now.faults - before.faults,
      now.prefetches - before.prefetches);
}

bool DiffersByMore(uint64_t a, uint64_t b) { return a > b ? a - b > a / 50 : b - a > b / 50; }

}  // namespace

std::vector<JobLog::Line> JobLog::Update(const Metrics& metrics) {
  std::vector<Line> lines;
  for (const DeviceMetrics& device : metrics.devices)
    InspectDevice(device, metrics.seconds - seconds_before_, &lines);
  const ResidencyStats total = Total(metrics.devices);
  InspectTier("host memory", total.host_tier_bytes, metrics.host_capacity_bytes, &host_, &lines);
  InspectTier("the disk tier", total.disk_tier_bytes, metrics.disk.capacity_bytes, &disk_, &lines);
  seconds_before_ = metrics.seconds;
  return lines;
}

void JobLog::InspectDevice(const DeviceMetrics& now, double seconds, std::vector<Line>* lines) {
  const auto [place, is_new] = before_.try_emplace(now.device);
  const DeviceMetrics& before = place->second;
  const auto say = [&](LogLevel level, const std::string& text) {
    if (!text.empty()) lines->push_back({level, absl::StrCat("GPU ", now.device, ": ", text)});
  };
  const auto first = [&](uint64_t ResidencyStats::*bytes) {
    return before.stats.*bytes == 0 && now.stats.*bytes > 0;
  };
  if (first(&ResidencyStats::host_spilled_bytes)) say(LogLevel::kInfo, "the first blocks are in host memory");
  if (first(&ResidencyStats::disk_spilled_bytes)) say(LogLevel::kInfo, "the first blocks are on disk");
  if (const uint64_t times = now.plan_departures - before.plan_departures; times > 0)
    say(LogLevel::kInfo, absl::StrCat("a launch departs from the repeating iteration: its plan is dropped",
                                      times > 1 ? absl::StrCat(", ", times, " times") : ""));
  const uint64_t better = now.plan_improvements - before.plan_improvements;
  if (now.plans - before.plans > better && now.plan_iteration_launches > 0)
    say(LogLevel::kInfo, PlanText(before, now));
  else if (better > 0)
    say(LogLevel::kDebug, "a better plan is in force");
  const uint64_t budget = now.stats.budget_in_force_bytes, budget_before = before.stats.budget_in_force_bytes;
  if (!is_new && DiffersByMore(budget, budget_before))
    say(LogLevel::kInfo,
        absl::StrCat("the budget in force is ", BytesText(budget), "; it was ", BytesText(budget_before)));
  say(LogLevel::kDebug, MovedText(before.stats, now.stats, seconds));
  place->second = now;
}

void JobLog::InspectTier(const char* name, uint64_t used_bytes, uint64_t capacity_bytes, TierSeen* seen,
                         std::vector<Line>* lines) {
  const bool nearly_full = capacity_bytes > 0 && used_bytes >= capacity_bytes - capacity_bytes / 32;
  const bool has_space = used_bytes < capacity_bytes - capacity_bytes / 10;
  if (nearly_full && seen->nearly_full && !seen->full && capacity_bytes == seen->capacity_bytes) {
    seen->full = true;
    lines->push_back({LogLevel::kInfo, absl::StrCat(name, " is full: ", BytesText(used_bytes), " of ",
                                                    BytesText(capacity_bytes), " hold spilled bytes")});
  } else if (seen->full && has_space) {
    seen->full = false;
    lines->push_back({LogLevel::kInfo, absl::StrCat(name, " has space again: ", BytesText(used_bytes), " of ",
                                                    BytesText(capacity_bytes), " hold spilled bytes")});
  }
  seen->nearly_full = nearly_full;
  seen->capacity_bytes = capacity_bytes;
}

}  // namespace spillway::integration
