#include "integration/cli/report/report_tables.h"

#include <algorithm>
#include <ctime>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "integration/cli/common/utf8.h"
#include "integration/cli/report/comparison_charts.h"
#include "integration/report/kernel_name.h"

namespace spillway::integration {
namespace {

constexpr size_t kMaxTableRows = 10;

// Returns a kernel's name, without its middle if it is longer than those that a run writes.
Cell Name(const std::string& name) {
  if (name.size() <= kLongestKernelName) return TextCell(name);
  const size_t half = kLongestKernelName / 2;
  return TextCell(ValidUtf8(name.substr(0, half)) + " … " + ValidUtf8(name.substr(name.size() - half)));
}

template <typename Row>
std::span<const Row> FirstRows(const std::vector<Row>& rows) {
  return std::span<const Row>(rows).first(std::min(rows.size(), kMaxTableRows));
}

// Returns "2026-11-23 08:05:36 UTC".
std::string UtcText(double unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm parts = {};
  char text[64];
  if (unix_s > 1e11 || ::gmtime_r(&seconds, &parts) == nullptr) return absl::StrFormat("%.0f", unix_s);
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

}  // namespace

Table CauseTable(const ReportFacts& facts) {
  Table table{"causes",
              "Time lost, by cause",
              {{"the GPU waited", {}}, {"time", Unit::kSeconds}, {"of the run", Unit::kPercent}},
              {}};
  for (const auto& [cause, seconds] : facts.lost_by_cause) {
    const bool known = facts.seconds && *facts.seconds > 0;
    table.rows.push_back({TextCell(cause), NumberCell(seconds),
                          NumberCell(known ? Known(100 * seconds / *facts.seconds) : std::nullopt)});
  }
  return table;
}

Table WaitingKernelsTable(const ReportData& data) {
  Table table{"waiting_kernels",
              "Kernels that waited longest",
              {{"kernel", {}}, {"waits", Unit::kCount}, {"waited", Unit::kSeconds}},
              {}};
  if (!data.stalls) return table;
  const ReportStalls& stalls = *data.stalls;
  std::vector<std::pair<double, double>> sums(stalls.kernels.size());  // seconds, waits
  for (size_t i = 0; i < stalls.kernel.size(); ++i) {
    if (!stalls.kernel[i]) continue;
    sums[*stalls.kernel[i]].first += stalls.seconds[i];
    sums[*stalls.kernel[i]].second += 1;
  }
  std::vector<size_t> order;
  for (size_t k = 0; k < sums.size(); ++k) {
    if (sums[k].second > 0) order.push_back(k);
  }
  std::ranges::stable_sort(order, [&sums](size_t a, size_t b) { return sums[a].first > sums[b].first; });
  if (order.size() > kMaxTableRows) order.resize(kMaxTableRows);
  for (size_t k : order)
    table.rows.push_back({Name(stalls.kernels[k]), NumberCell(sums[k].second), NumberCell(sums[k].first)});
  return table;
}

Table ReachingKernelsTable(const ReportData& data) {
  Table table{"reaching_kernels",
              "Kernels that reached host memory over the link",
              {{"kernel", {}},
               {"launches", Unit::kCount},
               {"in host memory, all launches", Unit::kBytes},
               {"GPU memory that one lacked", Unit::kBytes}},
              {}};
  for (const ReportReachingKernel& kernel : FirstRows(data.reaching_kernels))
    table.rows.push_back({Name(kernel.kernel), NumberCell(kernel.launches), NumberCell(kernel.bytes),
                          NumberCell(kernel.most_bytes)});
  return table;
}

Table PausesTable(const ReportData& data) {
  Table table{"pauses",
              "The longest pauses",
              {{"began at", Unit::kSeconds},
               {"by", {}},
               {"region", {}},
               {"lasted", Unit::kSeconds},
               {"until all had left", Unit::kSeconds},
               {"to host memory", Unit::kBytes},
               {"to the disk", Unit::kBytes},
               {"copies a second", Unit::kBytesPerSecond},
               {"unchanged", Unit::kBytes},
               {"dropped", Unit::kBytes}},
              {}};
  const auto lasted = [&](const ReportPause& pause) {
    return pause.SecondsUntil(data.job.seconds.value_or(0));
  };
  std::vector<size_t> order(data.pauses.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return lasted(data.pauses[a]) > lasted(data.pauses[b]); });
  if (order.size() > kMaxTableRows) order.resize(kMaxTableRows);
  std::ranges::sort(order);
  for (const size_t p : order) {
    const ReportPause& pause = data.pauses[p];
    const double copied = pause.host_bytes.value_or(0) + pause.disk_bytes.value_or(0);
    const bool has_rate = copied > 0 && pause.leaving_s > 0;
    table.rows.push_back({NumberCell(pause.start_s), TextCell(pause.by == "job" ? "the job" : pause.by),
                          TextCell(pause.region.empty() ? "everything" : pause.region),
                          NumberCell(lasted(pause)), NumberCell(pause.leaving_s),
                          NumberCell(pause.host_bytes), NumberCell(pause.disk_bytes),
                          NumberCell(has_rate ? Known(copied / pause.leaving_s) : std::nullopt),
                          NumberCell(pause.clean_bytes), NumberCell(pause.dropped_bytes)});
  }
  return table;
}

Table BlocksTable(const ReportData& data) {
  Table table{"blocks",
              "Blocks of the peak that moved most",
              {{"block", {}},
               {"size", Unit::kBytes},
               {"moved", Unit::kBytes},
               {"waited for", Unit::kSeconds},
               {"used last by", {}}},
              {}};
  for (const ReportBlock& block : FirstRows(data.largest_blocks))
    table.rows.push_back({TextCell(block.block), NumberCell(block.bytes), NumberCell(block.moved_bytes),
                          NumberCell(block.stalled_s), Name(block.last_kernel)});
  return table;
}

Table KernelsTable(const ReportData& data) {
  Table table{"kernels",
              "The costliest kernels",
              {{"kernel", {}},
               {"launches in an iteration", Unit::kCount},
               {"time in an iteration", Unit::kSeconds},
               {"waited in the run", Unit::kSeconds}},
              {}};
  for (const ReportKernel& kernel : FirstRows(data.costliest_kernels))
    table.rows.push_back({Name(kernel.kernel), NumberCell(kernel.launches), NumberCell(kernel.seconds),
                          NumberCell(kernel.stalled_s)});
  return table;
}

Table DirectoriesTable(const ReportData& data) {
  Table table{"directories",
              "Spill directories",
              {{"directory", {}},
               {"engine", {}},
               {"written", Unit::kBytes},
               {"read", Unit::kBytes},
               {"TB written a day", Unit::kCount}},
              {}};
  for (const ReportDirectory& directory : data.metrics.directories) {
    const char* const cache = !directory.direct ? "" : *directory.direct ? ", direct" : ", buffered";
    table.rows.push_back({TextCell(directory.path), TextCell(directory.engine + cache),
                          NumberCell(directory.written_bytes), NumberCell(directory.read_bytes),
                          NumberCell(directory.written_tb_per_day)});
  }
  return table;
}

Table TroubleTable(const ReportData& data) {
  Table table{"directory_trouble",
              "Directories whose drive had trouble",
              {{"directory", {}},
               {"failed transfers", Unit::kCount},
               {"retries", Unit::kCount},
               {"wrong checksums", Unit::kCount},
               {"slots out of use", Unit::kCount},
               {"closed, times", Unit::kCount},
               {"why", {}}},
              {}};
  for (const ReportDirectory& directory : data.metrics.directories) {
    const Known counts[] = {directory.errors, directory.retries, directory.mismatches,
                            directory.quarantined_slots, directory.closures};
    const bool closed = directory.closed.value_or(false);
    if (!closed && std::ranges::none_of(counts, [](Known count) { return count.value_or(0) > 0; })) continue;
    std::vector<Cell>& row = table.rows.emplace_back();
    row.push_back(TextCell(directory.path));
    for (const Known& count : counts) row.push_back(NumberCell(count));
    row.push_back(TextCell(closed ? "still closed: it " + directory.why_closed : directory.last_closure));
  }
  return table;
}

Table WhatIfTable(const WhatIf& what_if, const WhatIfSweep& sweep) {
  const Unit unit = sweep.axis == WhatIfAxis::kDisk ? Unit::kBytesPerSecond : Unit::kBytes;
  const char* const key = sweep.axis == WhatIfAxis::kGpuMemory    ? "gpu"
                          : sweep.axis == WhatIfAxis::kHostMemory ? "host"
                                                                  : "disk";
  Table table{absl::StrCat("what_if_", key),
              absl::StrCat("Simulated: ", sweep.axis == WhatIfAxis::kDisk ? "speeds of the disk, reading"
                                                                          : NameOf(sweep.axis)),
              {{NameOf(sweep.axis), unit},
               {"one iteration", Unit::kSeconds},
               {"of this run's", Unit::kPercent},
               {"share of its bound, at least", Unit::kPercent},
               {"", {}}},
              {}};
  for (const WhatIfPoint& point : sweep.points) {
    if (!point.runs) {
      table.rows.push_back({NumberCell(point.value), Cell(), Cell(), Cell(), TextCell(point.problem)});
      continue;
    }
    table.rows.push_back({NumberCell(point.value), NumberCell(point.iteration_s),
                          NumberCell(100 * point.iteration_s / what_if.iteration_s),
                          NumberCell(point.percent_of_bound),
                          TextCell(point.factor == 1 ? "this run's" : "")});
  }
  return table;
}

Table JobTable(const ReportData& data) {
  Table table{"job", "The job", {{"", {}}, {"", {}}}, {}};
  const ReportJob& job = data.job;
  const auto row = [&table](const char* name, const std::string& text) {
    if (!text.empty()) table.rows.push_back({TextCell(name), TextCell(text)});
  };
  const auto number = [](Known value) { return value ? absl::StrFormat("%.0f", *value) : ""; };
  row("command", absl::StrJoin(job.command, " "));
  row("host", job.host);
  row("process", number(job.pid));
  row("rank on the node", number(job.rank));
  row("device",
      absl::StrCat(job.device,
                   job.device_index ? absl::StrCat(" (number ", number(job.device_index), ")") : ""));
  if (job.device_bytes) row("memory of the device", Shown(*job.device_bytes, Unit::kBytes));
  if (data.metrics.devices > 1)
    row("devices", absl::StrFormat("%d; this page is of one of them, bytes of the disk are of all",
                                   data.metrics.devices));
  row("Spillway", job.spillway);
  row("framework", job.framework);
  row("driver", job.driver);
  if (job.started_unix) row("first block", UtcText(*job.started_unix));
  if (job.ended) row("ended", *job.ended ? "yes" : "no: written while it ran, or it was killed");
  for (const ReportDisk& disk : data.capacity.disks.value_or(std::vector<ReportDisk>()))
    row("spill directory",
        absl::StrCat(disk.directory, disk.bytes ? absl::StrCat(", ", Shown(*disk.bytes, Unit::kBytes)) : ""));
  return table;
}

Table SettingsTable(const ReportData& data) {
  Table table{"settings", "Settings that were given", {{"setting", {}}, {"value", {}}, {"from", {}}}, {}};
  for (const ReportSetting& setting : data.settings)
    table.rows.push_back({TextCell(setting.name), TextCell(setting.value), TextCell(setting.from)});
  return table;
}

}  // namespace spillway::integration
