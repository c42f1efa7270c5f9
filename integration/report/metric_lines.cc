// Figures, second part: lines for people.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/report/directory_metrics.h"
#include "integration/report/lost_causes.h"
#include "integration/report/metrics.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

// The share of all that came back; empty where nothing was brought back ahead of need.
std::string InTimeText(const ResidencyStats& stats) {
  if (stats.prefetched_bytes == 0 || stats.fetched_bytes == 0) return "";
  return absl::StrFormat(
      "; %.1f %% of what came back was there in time",
      100 * static_cast<double>(stats.in_time_bytes) / static_cast<double>(stats.fetched_bytes));
}

// "host 10.00 MiB, disk 1.00 GiB"; "nothing".
std::string TiersText(uint64_t host, uint64_t disk) {
  if (host == 0 && disk == 0) return "nothing";
  if (disk == 0) return "host " + os::BytesText(host);
  return (host == 0 ? std::string() : "host " + os::BytesText(host) + ", ") + "disk " + os::BytesText(disk);
}

// The bound is a quick one, so a share of it is the least that was reached of the possible. `spillway report`
// finds a better one, which would take seconds of the job's processors here.
std::string ShareText(double percent) {
  constexpr double kKnown = 98;  // no more than 2 points can be missing
  return absl::StrFormat("%s%.1f %% of bound", percent < kKnown ? "at least " : "", percent);
}

std::string IterationLine(const DeviceMetrics& device) {
  const SteadyIterations& steady = device.steady;
  const ResidencyStats& part = steady.per_iteration;
  std::string text = absl::StrFormat("iteration on GPU %d: %d launches, %.3f s", device.device,
                                     steady.launches, steady.iteration_seconds);
  if (const auto percent = PercentOfBound(device)) {
    text += absl::StrFormat(", %s (no plan is faster than %.3f s here)", ShareText(*percent),
                            device.steady.forecast.bound_seconds);
  }
  // A forecast above what the iteration took says nothing of it.
  const double forecast = device.steady.forecast.plan_seconds;
  if (forecast > 0 && forecast <= steady.iteration_seconds)
    text += absl::StrFormat(", the plan's forecast was %.3f s", forecast);
  text +=
      absl::StrFormat("; moves out %s, back %s", TiersText(part.host_spilled_bytes, part.disk_spilled_bytes),
                      TiersText(part.host_fetched_bytes, part.disk_fetched_bytes));
  text += InTimeText(part);
  text += "; the GPU had to wait";
  for (const LostCause& cause : kLostCauses) {
    absl::StrAppend(&text, &cause == kLostCauses ? " " : ", ",
                    absl::StrFormat("%.3f s for %s", SecondsOf(part.*cause.nanos), cause.what));
  }
  return text;
}

}  // namespace

std::optional<double> PercentOfBound(const DeviceMetrics& device) {
  // More than noise of samples: the launches' times are not those of this iteration.
  constexpr double kMaxOver = 1.05;
  const double bound = device.steady.forecast.bound_seconds;
  if (bound <= 0 || device.steady.iteration_seconds <= 0) return std::nullopt;
  const double part = bound / device.steady.iteration_seconds;
  if (part > kMaxOver) return std::nullopt;
  return 100 * std::min(1.0, part);
}

std::vector<std::string> IterationLines(const Metrics& metrics) {
  std::vector<std::string> lines;
  for (const DeviceMetrics& device : metrics.devices) {
    const bool moves = device.stats.spilled_bytes > 0 || device.stats.fetched_bytes > 0;
    if (device.steady.iterations > 0 && moves) lines.push_back(IterationLine(device));
  }
  return lines;
}

std::string Summary(const Metrics& metrics) {
  const allocator::ResidencyStats total = Total(metrics.devices);
  if (total.peak_chunk_bytes == 0) return "";
  std::string text = absl::StrCat("summary: peak ", os::BytesText(total.peak_bytes), " of a budget of ",
                                  os::BytesText(total.budget_bytes));
  if (total.driver_lacks_bytes > 0) {
    absl::StrAppend(&text, " (", os::BytesText(total.budget_in_force_bytes),
                    " at the end; the GPU has less for it)");
  }
  if (total.reached_launches > 0)
    text += absl::StrFormat("; %d launches reached %s in host memory", total.reached_launches,
                            os::BytesText(total.reached_bytes));
  if (total.soft_writes > 0)
    text += absl::StrFormat("; %d blocks were written in host memory by kernels that had not named them",
                            total.soft_writes);
  if (total.wrong_arrivals > 0)
    text += absl::StrFormat("; bytes came back to the GPU changed %d times", total.wrong_arrivals);
  if (total.spilled_bytes == 0 && total.fetched_bytes == 0) return text + "; nothing was moved";
  text += absl::StrFormat("; moved out %s (host %s, disk %s), back %s (host %s, disk %s)",
                          os::BytesText(total.spilled_bytes), os::BytesText(total.host_spilled_bytes),
                          os::BytesText(total.disk_spilled_bytes), os::BytesText(total.fetched_bytes),
                          os::BytesText(total.host_fetched_bytes), os::BytesText(total.disk_fetched_bytes));
  text += absl::StrFormat("; stalled %.1f s for GPU memory, %.1f s for bytes; the GPU had to wait %.1f s",
                          SecondsOf(total.stall_chunks_nanos), SecondsOf(total.stall_arrival_nanos),
                          LostSeconds(total));
  text += InTimeText(total);
  text += absl::StrFormat("; SSD bytes written %s", os::BytesText(metrics.disk.written_bytes));
  for (const io::DirectoryStats& directory : metrics.disk.directories)
    text += DirectoryText(directory, metrics.seconds);
  if (metrics.disk.write_budget_bytes > 0) {
    text +=
        absl::StrFormat("; %s of the write budget left", os::BytesText(metrics.disk.write_budget_left_bytes));
  }
  if (metrics.unknown_kernel_launches > 0)
    text += absl::StrFormat("; %d launches of kernels of unknown origin needed every block",
                            metrics.unknown_kernel_launches);
  if (metrics.seconds > 0) text += absl::StrFormat("; %.1f s", metrics.seconds);
  return text;
}

std::string StatusText(const Metrics& metrics) {
  const allocator::ResidencyStats total = Total(metrics.devices);
  std::string text =
      absl::StrFormat("status: on the GPU %s of %s, host %s, disk %s; moved out %s, back %s",
                      os::BytesText(total.resident_bytes), os::BytesText(total.budget_in_force_bytes),
                      os::BytesText(total.host_tier_bytes), os::BytesText(total.disk_tier_bytes),
                      os::BytesText(total.spilled_bytes), os::BytesText(total.fetched_bytes));
  if (metrics.seconds > 0) {
    text += absl::StrFormat("; stalled %.1f %% of %.1f s", 100 * StallSeconds(total) / metrics.seconds,
                            metrics.seconds);
  }
  if (metrics.iterations_per_second > 0)
    text += absl::StrFormat("; %.2f iterations/s", metrics.iterations_per_second);
  for (const DeviceMetrics& device : metrics.devices) {
    if (const auto percent = PercentOfBound(device)) text += "; " + ShareText(*percent);
  }
  if (!metrics.waits_now.empty()) text += "; " + metrics.waits_now;
  return text;
}

}  // namespace spillway::integration
