#include "integration/report/prometheus.h"

#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "integration/report/directory_figures.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

enum class Unit : uint8_t { kPlain, kNanos };  // of the member; what is written has base units

// One figure of a device. Rows of one name are one metric, and stand together.
struct Row {
  const char* name;  // a counter's ends in _total
  const char* help;
  uint64_t ResidencyStats::*member;
  const char* label = "";  // `tier="host"`
  Unit unit = Unit::kPlain;
};

constexpr char kSpilled[] = "Bytes moved off the GPU.";
constexpr char kFetched[] = "Bytes moved back to the GPU.";
constexpr char kTier[] = "Spilled bytes in a tier now.";
constexpr char kStalled[] = "Time that launching threads waited, a sum over threads.";
constexpr char kLostHelp[] = "Time in which the GPU had nothing to do.";

constexpr Row kRows[] = {
    {"spillway_budget_bytes", "Device memory that the job may hold.", &ResidencyStats::budget_bytes},
    {"spillway_budget_in_force_bytes", "The same now: less while the driver has less for it.",
     &ResidencyStats::budget_in_force_bytes},
    {"spillway_live_bytes", "Blocks that the job holds, wherever they are.", &ResidencyStats::live_bytes},
    {"spillway_resident_bytes", "Of the live blocks, on the GPU.", &ResidencyStats::resident_bytes},
    {"spillway_cached_bytes", "Chunks of freed blocks, kept for the next.", &ResidencyStats::cached_bytes},
    {"spillway_chunk_bytes", "Device memory that Spillway holds.", &ResidencyStats::chunk_bytes},
    {"spillway_external_bytes", "Device memory of allocations that are not Spillway's.",
     &ResidencyStats::external_bytes},
    {"spillway_device_peak_bytes", "Most device memory that the process held.",
     &ResidencyStats::peak_device_bytes},
    {"spillway_pinned_bytes", "Blocks that must stay on the GPU.", &ResidencyStats::pinned_bytes},
    {"spillway_tier_bytes", kTier, &ResidencyStats::host_tier_bytes, "tier=\"host\""},
    {"spillway_tier_bytes", kTier, &ResidencyStats::disk_tier_bytes, "tier=\"disk\""},
    {"spillway_spilled_bytes_total", kSpilled, &ResidencyStats::host_spilled_bytes, "tier=\"host\""},
    {"spillway_spilled_bytes_total", kSpilled, &ResidencyStats::disk_spilled_bytes, "tier=\"disk\""},
    {"spillway_fetched_bytes_total", kFetched, &ResidencyStats::host_fetched_bytes, "tier=\"host\""},
    {"spillway_fetched_bytes_total", kFetched, &ResidencyStats::disk_fetched_bytes, "tier=\"disk\""},
    {"spillway_in_time_bytes_total", "Of the bytes moved back, those that the GPU did not wait for.",
     &ResidencyStats::in_time_bytes},
    {"spillway_launches_total", "Launches that name a block of Spillway's.", &ResidencyStats::launches},
    {"spillway_slow_launches_total", "Launches that had to wait or to map.", &ResidencyStats::slow_launches},
    {"spillway_evictions_total", "Blocks taken off the GPU.", &ResidencyStats::evictions},
    {"spillway_faults_total", "Blocks brought back on demand.", &ResidencyStats::faults},
    {"spillway_prefetches_total", "Blocks brought back ahead of need.", &ResidencyStats::prefetches},
    {"spillway_stall_seconds_total", kStalled, &ResidencyStats::stall_chunk_nanos, "cause=\"chunks\"",
     Unit::kNanos},
    {"spillway_stall_seconds_total", kStalled, &ResidencyStats::stall_disk_nanos, "cause=\"arrival\"",
     Unit::kNanos},
    {"spillway_lost_seconds_total", kLostHelp, &ResidencyStats::lost_chunk_nanos, "cause=\"chunks\"",
     Unit::kNanos},
    {"spillway_lost_seconds_total", kLostHelp, &ResidencyStats::lost_read_nanos, "cause=\"arrival\"",
     Unit::kNanos},
    {"spillway_lost_seconds_total", kLostHelp, &ResidencyStats::lost_run_ahead_nanos, "cause=\"run_ahead\"",
     Unit::kNanos},
    {"spillway_throttled_seconds_total", "Time that launching threads were kept near a GPU that had work.",
     &ResidencyStats::throttled_nanos, "", Unit::kNanos},
};

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

std::string LabelUnlessEmpty(const char* label, const std::string& value) {
  return value.empty() ? "" : absl::StrCat(",", label, "\"", Escaped(value), "\"");
}

class Writer {
 public:
  explicit Writer(const PrometheusLabels& labels)
      : common_(absl::StrFormat("rank=\"%d\",pid=\"%d\"", labels.rank, labels.pid) +
                LabelUnlessEmpty("job_id=", labels.identity.job) +
                LabelUnlessEmpty("user=", labels.identity.user)) {}

  // The lines before the first sample of a metric. Its type follows from its name.
  void Describe(const std::string& name, const std::string& help) {
    if (name == described_) return;
    described_ = name;
    const char* const type = name.ends_with("_total") ? "counter" : "gauge";
    absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }

  void Add(const std::string& labels, const std::string& value) {
    absl::StrAppend(&text_, described_, "{", labels, labels.empty() ? "" : ",", common_, "} ", value, "\n");
  }

  std::string text() const { return text_; }

 private:
  const std::string common_;
  std::string described_;
  std::string text_;
};

std::string SecondsText(double seconds) { return absl::StrFormat("%.9g", seconds); }

std::string ValueOf(const Row& row, const ResidencyStats& stats) {
  const uint64_t value = stats.*row.member;
  if (row.unit == Unit::kPlain) return absl::StrCat(value);
  return SecondsText(static_cast<double>(value) / 1e9);
}

std::string DeviceLabel(const DeviceFigures& device) {
  return absl::StrFormat("device=\"%d\"", device.device);
}

// How the drives of the spill directories do.
void AddDirectories(const Figures& figures, Writer* writer) {
  const auto add = [&](const char* name, const char* help, auto value_of) {
    for (const io::DirectoryStats& directory : figures.disk.directories) {
      writer->Describe(name, help);
      writer->Add("directory=\"" + Escaped(directory.path) + "\"", absl::StrCat(value_of(directory)));
    }
  };
  using Stats = io::DirectoryStats;
  add("spillway_directory_written_bytes_total", "Bytes written to the directory's spill file.",
      [](const Stats& stats) { return stats.bytes_written; });
  add("spillway_directory_read_bytes_total", "Bytes read from the directory's spill file.",
      [](const Stats& stats) { return stats.bytes_read; });
  add("spillway_directory_written_tb_per_day", "Written since the first block, as 10^12 bytes a day.",
      [&figures](const Stats& stats) { return WrittenTbPerDay(stats, figures.seconds); });
  add("spillway_directory_errors_total", "Writes and reads that ended in an error.",
      [](const Stats& stats) { return stats.errors; });
  add("spillway_directory_retries_total", "Requests that were tried again, or continued.",
      [](const Stats& stats) { return stats.retries; });
  add("spillway_directory_mismatches_total", "Reads whose checksum was not that of the write.",
      [](const Stats& stats) { return stats.checksum_mismatches; });
  add("spillway_directory_closures_total", "How often errors or silence closed the directory.",
      [](const Stats& stats) { return stats.times_closed; });
  add("spillway_directory_closed", "1 while the directory gets no new slots after errors, or is silent.",
      [](const Stats& stats) { return stats.closed ? 1 : 0; });
  add("spillway_directory_quarantined_slots", "Slots that are out of use after a failed write.",
      [](const Stats& stats) { return stats.slots_quarantined; });
  add("spillway_directory_moved_slots_total",
      "Slots whose bytes went to another directory, since this one stayed closed.",
      [](const Stats& stats) { return stats.slots_moved; });
}

void AddWriteBudget(const DiskFigures& disk, Writer* writer) {
  if (disk.write_budget_bytes == 0) return;
  writer->Describe("spillway_write_budget_bytes",
                   "What may be written to spill files in the budget's period.");
  writer->Add("", absl::StrCat(disk.write_budget_bytes));
  writer->Describe("spillway_write_budget_left_bytes", "Of the write budget, what is left now.");
  writer->Add("", absl::StrCat(disk.write_budget_left_bytes));
}

void AddPauses(const PauseFigures& pause, Writer* writer) {
  if (pause.pauses == 0) return;
  writer->Describe("spillway_pauses_total", "Pauses, by the job and from outside.");
  writer->Add("", absl::StrCat(pause.pauses));
  writer->Describe("spillway_paused_bytes_total", "Bytes that left the GPU in pauses, by how they left.");
  writer->Add("way=\"clean\"", absl::StrCat(pause.clean_bytes));
  writer->Add("way=\"host\"", absl::StrCat(pause.host_bytes));
  writer->Add("way=\"disk\"", absl::StrCat(pause.disk_bytes));
  writer->Add("way=\"dropped\"", absl::StrCat(pause.dropped_bytes));
  writer->Describe("spillway_pausing_seconds_total", "Time until everything that was paused had left.");
  writer->Add("", SecondsText(static_cast<double>(pause.pausing_nanos) / 1e9));
  writer->Describe("spillway_paused_seconds_total", "Time for which the job was paused from outside.");
  writer->Add("", SecondsText(static_cast<double>(pause.outside_nanos) / 1e9));
}

// Of the recurring iteration; where it is not known there is no sample.
void AddIteration(const Figures& figures, Writer* writer) {
  const auto add = [&](const char* name, const char* help, auto value_of) {
    for (const DeviceFigures& device : figures.devices) {
      const double value = value_of(device.steady);
      if (value <= 0) continue;
      writer->Describe(name, help);
      writer->Add(DeviceLabel(device), SecondsText(value));
    }
  };
  add("spillway_iteration_seconds", "What an iteration takes.",
      [](const SteadyIterations& steady) { return steady.iteration_seconds; });
  add("spillway_iteration_bound_seconds", "What an iteration takes at least with this memory.",
      [](const SteadyIterations& steady) { return steady.forecast.bound_seconds; });
  add("spillway_iteration_ideal_seconds", "What an iteration takes with everything on the GPU.",
      [](const SteadyIterations& steady) { return steady.forecast.ideal_seconds; });
}

}  // namespace

std::string PrometheusText(const Figures& figures, const PrometheusLabels& labels) {
  Writer writer(labels);
  writer.Describe("spillway_build_info", "The version that serves the process; always 1.");
  writer.Add(absl::StrCat("version=\"", SPILLWAY_VERSION_TEXT, "\""), "1");
  writer.Describe("spillway_uptime_seconds", "Time since the first block.");
  writer.Add("", SecondsText(figures.seconds));
  writer.Describe("spillway_disk_written_bytes_total", "Bytes written to spill files, of all devices.");
  writer.Add("", absl::StrCat(figures.disk.written_bytes));
  writer.Describe("spillway_disk_read_bytes_total", "Bytes read from spill files, of all devices.");
  writer.Add("", absl::StrCat(figures.disk.read_bytes));
  for (auto row = std::begin(kRows); row != std::end(kRows);) {
    const std::string name = row->name;
    auto end = row;
    while (end != std::end(kRows) && name == end->name) ++end;
    for (const DeviceFigures& device : figures.devices) {
      writer.Describe(name, row->help);
      for (auto one = row; one != end; ++one) {
        const std::string own = *one->label == '\0' ? "" : absl::StrCat(",", one->label);
        writer.Add(DeviceLabel(device) + own, ValueOf(*one, device.stats));
      }
    }
    row = end;
  }
  AddDirectories(figures, &writer);
  AddWriteBudget(figures.disk, &writer);
  AddPauses(figures.pause, &writer);
  AddIteration(figures, &writer);
  return writer.text();
}

}  // namespace spillway::integration
