#include "integration/report/prometheus.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "integration/report/directory_metrics.h"
#include "integration/report/metric_rows.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

std::string LabelUnlessEmpty(const char* label, const std::string& value) {
  return value.empty() ? "" : absl::StrCat(",", label, "\"", Escaped(value), "\"");
}

// Of "name label=value".
std::string_view NameOfMetric(std::string_view metric) { return metric.substr(0, metric.find(' ')); }

// label="value"; empty where the metric has none.
std::string LabelOfMetric(std::string_view metric) {
  const size_t space = metric.find(' '), equals = metric.find('=');
  if (space == metric.npos) return "";
  return absl::StrCat(std::string(metric.substr(space + 1, equals - space - 1)), "=\"",
                      std::string(metric.substr(equals + 1)), "\"");
}

class Writer {
 public:
  explicit Writer(const PrometheusLabels& labels)
      : common_(absl::StrFormat("rank=\"%d\",pid=\"%d\"", labels.rank, labels.pid) +
                LabelUnlessEmpty("job_id=", labels.identity.job) +
                LabelUnlessEmpty("user=", labels.identity.user)) {}

  // Begins a metric with the lines before its first sample. Its type follows from its name, and the words of
  // one that several rows have from its METRIC.
  void Describe(std::string_view metric, std::string_view help) {
    const std::string name(NameOfMetric(metric));
    if (name == described_) return;
    described_ = name;
    for (const MetricText& words : kMetricTexts) {
      if (words.metric == name) help = words.help;
    }
    const char* const type = name.ends_with("_total") ? "counter" : "gauge";
    absl::StrAppend(&text_, "# HELP ", name, " ", std::string(help), "\n# TYPE ", name, " ", type, "\n");
  }

  void Add(const std::string& labels, const std::string& value) {
    absl::StrAppend(&text_, described_, "{", labels, labels.empty() ? "" : ",", common_, "} ", value, "\n");
  }

  // A sample of a row whose metric has a label of its own or none.
  void AddRow(std::string_view metric, std::string_view help, const std::string& value) {
    if (metric.empty()) return;
    Describe(metric, help);
    Add(LabelOfMetric(metric), value);
  }

  std::string text() const { return text_; }

 private:
  const std::string common_;
  std::string described_;
  std::string text_;
};

std::string SecondsText(double seconds) { return absl::StrFormat("%.9g", seconds); }

// Integers as such, switches as 0 and 1, times and rates with nine figures; texts have no metric.
std::string ValueText(uint64_t value) { return absl::StrCat(value); }
std::string ValueText(bool value) { return value ? "1" : "0"; }
std::string ValueText(double value) { return SecondsText(value); }
std::string ValueText(const std::string&) { return ""; }

std::string ValueOf(const FigureRow& row, const ResidencyStats& stats) {
  const uint64_t value = stats.*row.member;
  return row.unit == RowUnit::kNanos ? SecondsText(SecondsOf(value)) : absl::StrCat(value);
}

std::string DeviceLabel(const DeviceMetrics& device) {
  return absl::StrFormat("device=\"%d\"", device.device);
}

// The counts of residencies: all samples of a metric together, by device.
void AddResidencies(const Metrics& metrics, Writer* writer) {
  for (auto row = std::begin(kFigureRows); row != std::end(kFigureRows);) {
    const std::string_view name = NameOfMetric(row->metric);
    auto end = row + 1;
    while (end != std::end(kFigureRows) && !name.empty() && name == NameOfMetric(end->metric)) ++end;
    for (const DeviceMetrics& device : metrics.devices) {
      if (name.empty()) break;
      writer->Describe(row->metric, row->help);
      for (auto one = row; one != end; ++one) {
        const std::string own = LabelOfMetric(one->metric);
        writer->Add(DeviceLabel(device) + (own.empty() ? "" : "," + own), ValueOf(*one, device.stats));
      }
    }
    row = end;
  }
}

// The counts of predictors.
void AddPlans(const Metrics& metrics, Writer* writer) {
  const auto add = [&](std::string_view metric, std::string_view help, uint64_t DeviceMetrics::*member) {
    for (const DeviceMetrics& device : metrics.devices) {
      if (metric.empty()) return;
      writer->Describe(metric, help);
      writer->Add(DeviceLabel(device), absl::StrCat(device.*member));
    }
  };
#define DEVICE_METRIC(name, metric, help) add(metric, help, &DeviceMetrics::name);
#include "integration/report/job_metrics.def"
}

// How the drives of the spill directories do.
void AddDirectories(const Metrics& metrics, Writer* writer) {
  const double seconds = metrics.seconds;
  const auto add = [&](std::string_view metric, std::string_view help, auto value_of) {
    if (metric.empty()) return;
    for (const io::DirectoryStats& directory : metrics.disk.directories) {
      writer->Describe(metric, help);
      writer->Add("directory=\"" + Escaped(directory.path) + "\"", ValueText(value_of(directory)));
    }
  };
#define DIRECTORY_METRIC(key, type, value, metric, help) \
  add(metric, help, [&](const io::DirectoryStats& directory) { return value; });
#include "integration/report/job_metrics.def"
}

void AddDisk(const DiskMetrics& disk, Writer* writer) {
#define DISK_METRIC(name, metric, help) writer->AddRow(metric, help, absl::StrCat(disk.name));
#include "integration/report/job_metrics.def"
  if (disk.write_budget_bytes == 0) return;
#define BUDGET_METRIC(name, metric, help) writer->AddRow(metric, help, absl::StrCat(disk.name));
#include "integration/report/job_metrics.def"
}

void AddProcess(const Metrics& metrics, Writer* writer) {
#define PROCESS_METRIC(name, metric, help) writer->AddRow(metric, help, absl::StrCat(metrics.name));
#include "integration/report/job_metrics.def"
}

void AddPauses(const PauseMetrics& pause, Writer* writer) {
  if (pause.pauses == 0) return;
#define PAUSE_METRIC(key, type, value, metric, help) writer->AddRow(metric, help, ValueText(value));
#include "integration/report/job_metrics.def"
}

// Values of the recurring iteration; there is no sample where it is not known.
void AddIteration(const Metrics& metrics, Writer* writer) {
  const auto add = [&](std::string_view metric, std::string_view help, auto value_of) {
    for (const DeviceMetrics& device : metrics.devices) {
      const double value = metric.empty() ? 0 : value_of(device.steady);
      if (value <= 0) continue;
      writer->Describe(metric, help);
      writer->Add(DeviceLabel(device), SecondsText(value));
    }
  };
#define ITERATION_METRIC(key, type, value, metric, help) \
  add(metric, help, [](const SteadyIterations& steady) { return static_cast<double>(value); });
#include "integration/report/job_metrics.def"
}

}  // namespace

std::string PrometheusText(const Metrics& metrics, const PrometheusLabels& labels) {
  Writer writer(labels);
  writer.Describe("spillway_build_info", "The version that serves the process; always 1.");
  writer.Add(absl::StrCat("version=\"", SPILLWAY_VERSION_TEXT, "\""), "1");
  writer.Describe("spillway_uptime_seconds", "Time since the first block.");
  writer.Add("", SecondsText(metrics.seconds));
  AddDisk(metrics.disk, &writer);
  AddProcess(metrics, &writer);
  AddResidencies(metrics, &writer);
  AddPlans(metrics, &writer);
  AddDirectories(metrics, &writer);
  AddPauses(metrics.pause, &writer);
  AddIteration(metrics, &writer);
  return writer.text();
}

}  // namespace spillway::integration
