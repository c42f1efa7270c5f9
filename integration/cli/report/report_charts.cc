#include "integration/cli/report/report_charts.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "integration/cli/page/chart_parts.h"
#include "integration/cli/report/phase_text.h"
#include "integration/cli/report/report_bins.h"

namespace spillway::integration {
namespace {

using Mark = LegendEntry::Mark;

constexpr size_t kMaxBins = 400;
constexpr size_t kStallBins = 60;
constexpr size_t kMaxDriveCharts = 4;
constexpr size_t kMaxPoints = 150;    // above, a line alone
constexpr size_t kMaxMarked = 60;     // iterations whose ends are marked
constexpr size_t kFewestSamples = 8;  // of an iteration that is drawn

double MostOf(const Column& values) { return values.empty() ? 0 : *std::ranges::max_element(values); }

double ChartEnd(const ReportData& data, double sampled_s) {
  return std::max(sampled_s, data.job.seconds.value_or(data.metrics.seconds.value_or(0)));
}

// Appends rows {t, name, v, o}: a value of one series at the beginning of its bin, and one more at the end of
// the last.
void AppendSeries(const Series& series, const std::string& name, int order, double factor, Json* rows) {
  for (size_t i = 0; i < series.values.size(); ++i)
    rows->push_back(Json{{"t", Rounded(static_cast<double>(i) * series.every_s)},
                         {"name", name},
                         {"o", order},
                         {"v", Rounded(series.values[i] / factor)}});
  if (series.values.empty()) return;
  rows->push_back(Json{{"t", Rounded(static_cast<double>(series.values.size()) * series.every_s)},
                       {"name", name},
                       {"o", order},
                       {"v", Rounded(series.values.back() / factor)}});
}

// Returns bytes in each interval as bytes a second.
Series RatesOf(const Column& bytes, double every_s) {
  Series series = MergedBySum(bytes, every_s, kMaxBins);
  for (double& value : series.values) value /= series.every_s;
  return series;
}

Json Areas(Json rows, const std::string& y_title, double end_s, Json colors, bool stacked) {
  Json y = Quantity("v", y_title);
  y["stack"] = stacked ? Json("zero") : Json(nullptr);
  return Json{
      {"data", Values(std::move(rows))},
      {"mark", {{"type", "area"}, {"interpolate", "step-after"}, {"fillOpacity", stacked ? 0.85 : 0.7}}},
      {"encoding",
       {{"x", TimeAxis("t", end_s)},
        {"y", std::move(y)},
        {"color", std::move(colors)},
        {"order", {{"field", "o"}, {"type", "quantitative"}}}}}};
}

// Draws one direction above the line of 0, the other below.
Chart MirroredChart(const Column& above, const Column& below, double every_s, double end_s,
                    const std::string& above_name, const std::string& below_name) {
  const Series up = RatesOf(above, every_s);
  Series down = RatesOf(below, every_s);
  const AxisUnit unit = AxisUnitFor(std::max(MostOf(up.values), MostOf(down.values)), Unit::kBytesPerSecond);
  for (double& value : down.values) value = -value;
  Json rows = Json::array();
  AppendSeries(up, above_name, 0, unit.factor, &rows);
  AppendSeries(down, below_name, 1, unit.factor, &rows);
  Chart chart;
  chart.legend = {{above_name, "var(--in)"}, {below_name, "var(--out)"}};
  chart.spec = Areas(std::move(rows), unit.name, end_s, Colors("name", chart.legend), false);
  chart.spec["encoding"]["y"]["axis"] = {{"labelExpr", "format(abs(datum.value), '~g')"}};
  return chart;
}

// Adds upright lines at the ends of iterations, unless they would run together.
void AppendIterationEnds(const ReportData& data, double end_s, Chart* chart, Json* layers) {
  if (!data.iterations || data.iterations->start_s.empty() || data.iterations->start_s.size() > kMaxMarked)
    return;
  Json rows = Json::array();
  for (size_t i = 0; i < data.iterations->start_s.size(); ++i)
    rows.push_back(Json{{"t", Rounded(data.iterations->start_s[i] + data.iterations->seconds[i])}});
  chart->legend.push_back({"ends of iterations", "var(--quiet)", Mark::kLine});
  layers->push_back(Json{{"data", Values(std::move(rows))},
                         {"mark", {{"type", "rule"}, {"strokeWidth", 0.7}, {"stroke", "var(--quiet)"}}},
                         {"encoding", {{"x", TimeAxis("t", end_s)}}}});
}

// Adds shaded bands while the job was paused, by itself or from outside.
void AppendPauses(const ReportData& data, double end_s, Chart* chart, Json* layers) {
  if (data.pauses.empty()) return;
  Json rows = Json::array();
  for (const ReportPause& pause : data.pauses) {
    rows.push_back(
        Json{{"t", Rounded(pause.start_s)}, {"u", Rounded(pause.start_s + pause.SecondsUntil(end_s))}});
  }
  chart->legend.push_back({"paused", "var(--quiet)"});
  layers->push_back(Json{{"data", Values(std::move(rows))},
                         {"mark", {{"type", "rect"}, {"fill", "var(--quiet)"}, {"fillOpacity", 0.35}}},
                         {"encoding", {{"x", TimeAxis("t", end_s)}, {"x2", {{"field", "u"}}}}}});
}

// Adds shaded bands over the whole height, and their names at the top. `length`: of the iteration, in the
// axis' unit.
void AppendPhases(const std::vector<ReportPhase>& phases, double length, const Json& x, Json* layers) {
  Json rows = Json::array();
  for (size_t i = 0; i < phases.size(); ++i)
    rows.push_back(Json{{"t", Rounded(phases[i].from * length)},
                        {"u", Rounded(phases[i].to * length)},
                        {"m", Rounded((phases[i].from + phases[i].to) / 2 * length)},
                        {"shade", i % 2 == 0 ? 0.0 : 0.09},
                        {"phase", PhaseLabel(phases[i])}});
  Json middle = x, shade = Quantity("shade", "");
  middle["field"] = "m";
  shade["scale"] = nullptr;
  layers->push_back(
      Json{{"data", Values(rows)},
           {"mark", {{"type", "rect"}, {"fill", "var(--ink)"}}},
           {"encoding", {{"x", x}, {"x2", {{"field", "u"}}}, {"fillOpacity", std::move(shade)}}}});
  layers->push_back(
      Json{{"data", Values(std::move(rows))},
           {"mark", {{"type", "text"}, {"fontSize", 11}, {"baseline", "top"}, {"fill", "var(--ink)"}}},
           {"encoding",
            {{"x", std::move(middle)},
             {"y", {{"value", 3}}},
             {"text", {{"field", "phase"}, {"type", "nominal"}}}}}});
}

// Returns the samples of one iteration, the first at its start.
Series Within(const Column& values, double every_s, double from, double seconds) {
  const auto at = [&values, every_s](double time) {
    return std::min(values.size(), static_cast<size_t>(std::max(0.0, time / every_s)));
  };
  return {every_s, Column(values.begin() + static_cast<std::ptrdiff_t>(at(from)),
                          values.begin() + static_cast<std::ptrdiff_t>(at(from + seconds)))};
}

}  // namespace

std::optional<Chart> IterationMemoryChart(const ReportData& data, const ReportFacts& facts) {
  if (!data.memory || !data.iterations || !data.moves) return std::nullopt;
  const auto shown = IterationToShow(*data.iterations, *data.moves, facts.seconds.value_or(0));
  if (!shown) return std::nullopt;
  const double from = data.iterations->start_s[*shown], seconds = data.iterations->seconds[*shown];
  const AxisUnit time = AxisUnitFor(seconds, Unit::kSeconds);
  const ReportMemory& memory = *data.memory;
  Series parts[] = {Within(memory.gpu, memory.every_s, from, seconds),
                    Within(memory.host, memory.every_s, from, seconds),
                    Within(memory.disk, memory.every_s, from, seconds)};
  if (parts[0].values.size() < kFewestSamples) return std::nullopt;
  double most = facts.budget_bytes.value_or(0) * 1.02;
  for (const Series& part : parts) most += MostOf(part.values);
  const AxisUnit unit = AxisUnitFor(most, Unit::kBytes);
  Chart chart;
  chart.key = "iteration_memory";
  chart.title = "Memory in that iteration";
  chart.legend = {{"GPU", "var(--gpu)"}, {"host memory", "var(--host)"}, {"disk", "var(--disk)"}};
  Json rows = Json::array();
  for (int p = 0; p < 3; ++p) {
    parts[p].every_s /= time.factor;
    AppendSeries(parts[p], chart.legend[static_cast<size_t>(p)].name, p, unit.factor, &rows);
  }
  Json layers = Json::array();
  layers.push_back(
      Areas(std::move(rows), unit.name, seconds / time.factor, Colors("name", chart.legend), true));
  Json& x = layers[0]["encoding"]["x"];
  x["title"] = absl::StrCat("time in the iteration, ", time.name);
  x["scale"]["clamp"] = true;
  if (facts.budget_bytes) {
    chart.legend.push_back({"GPU budget", "var(--limit)", Mark::kDashes});
    layers.push_back(Rule(*facts.budget_bytes / unit.factor, chart.legend.back()));
  }
  const Json axis = x;
  if (!data.phases.empty()) AppendPhases(data.phases, seconds / time.factor, axis, &layers);
  chart.spec = Json{{"layer", std::move(layers)}};
  return chart;
}

std::optional<Chart> MemoryChart(const ReportData& data, const ReportFacts& facts) {
  if (!data.memory || data.memory->gpu.empty()) return std::nullopt;
  const ReportMemory& memory = *data.memory;
  const Series gpu = MergedByMost(memory.gpu, memory.every_s, kMaxBins);
  const Series host = MergedByMost(memory.host, memory.every_s, kMaxBins);
  const Series disk = MergedByMost(memory.disk, memory.every_s, kMaxBins);
  const Series live = MergedByMost(memory.live, memory.every_s, kMaxBins);
  const AxisUnit unit = AxisUnitFor(
      std::max({MostOf(gpu.values) + MostOf(host.values) + MostOf(disk.values), MostOf(live.values)}),
      Unit::kBytes);
  Chart chart;
  chart.key = "memory";
  chart.title = "Memory by tier";
  chart.words =
      "Areas lie on each other: device memory of the process, then spilled bytes in host memory and on the "
      "disk. "
      "A block whose copy is kept counts in both places, so the sum may exceed what the job holds.";
  chart.legend = {{"GPU", "var(--gpu)"}, {"host memory", "var(--host)"}, {"disk", "var(--disk)"}};
  Json rows = Json::array(), live_rows = Json::array();
  AppendSeries(gpu, "GPU", 0, unit.factor, &rows);
  AppendSeries(host, "host memory", 1, unit.factor, &rows);
  AppendSeries(disk, "disk", 2, unit.factor, &rows);
  AppendSeries(live, "live", 0, unit.factor, &live_rows);
  const double end = ChartEnd(data, static_cast<double>(gpu.values.size()) * gpu.every_s);
  Json layers = Json::array();
  layers.push_back(Areas(std::move(rows), unit.name, end, Colors("name", chart.legend), true));
  if (!live.values.empty()) {
    chart.legend.push_back({"what the job holds", "var(--ink)", Mark::kLine});
    layers.push_back(Json{
        {"data", Values(std::move(live_rows))},
        {"mark",
         {{"type", "line"}, {"interpolate", "step-after"}, {"strokeWidth", 1.5}, {"stroke", "var(--ink)"}}},
        {"encoding", {{"x", TimeAxis("t", end)}, {"y", Quantity("v", unit.name)}}}});
  }
  AppendPauses(data, end, &chart, &layers);
  AppendIterationEnds(data, end, &chart, &layers);
  if (facts.budget_bytes) {
    chart.legend.push_back({"GPU budget", "var(--limit)", Mark::kDashes});
    layers.push_back(Rule(*facts.budget_bytes / unit.factor, chart.legend.back()));
  }
  chart.spec = Json{{"layer", std::move(layers)}};
  chart.height = 260;
  return chart;
}

std::optional<Chart> LinkChart(const ReportData& data) {
  if (!data.transfers || (MostOf(data.transfers->to_gpu) == 0 && MostOf(data.transfers->to_host) == 0))
    return std::nullopt;
  const ReportTransfers& transfers = *data.transfers;
  Chart chart =
      MirroredChart(transfers.to_gpu, transfers.to_host, transfers.every_s,
                    ChartEnd(data, static_cast<double>(transfers.to_gpu.size()) * transfers.every_s),
                    "to the GPU", "from the GPU");
  chart.key = "link";
  chart.title = "The link between GPU and host memory";
  chart.words =
      "Bytes that come back are above the line, those that leave below it; bytes of the disk pass here, too.";
  return chart;
}

std::vector<Chart> DriveCharts(const ReportData& data) {
  std::vector<Chart> charts;
  if (!data.transfers) return charts;
  std::vector<ReportDisk> drives = data.transfers->disks;
  if (drives.size() > kMaxDriveCharts) {  // as one
    ReportDisk all{absl::StrCat("all ", drives.size(), " directories"), {}, {}, {}, "", {}};
    for (const ReportDisk& drive : drives) {
      all.read.resize(std::max(all.read.size(), drive.read.size()));
      all.written.resize(std::max(all.written.size(), drive.written.size()));
      for (size_t i = 0; i < drive.read.size(); ++i) all.read[i] += drive.read[i];
      for (size_t i = 0; i < drive.written.size(); ++i) all.written[i] += drive.written[i];
    }
    drives = {all};
  }
  for (const ReportDisk& drive : drives) {
    if (MostOf(drive.read) == 0 && MostOf(drive.written) == 0) continue;
    Chart chart = MirroredChart(
        drive.read, drive.written, data.transfers->every_s,
        ChartEnd(data, static_cast<double>(drive.read.size()) * data.transfers->every_s), "read", "written");
    chart.key = absl::StrCat("drive", charts.size());
    chart.title = absl::StrCat("Spill files in ", drive.directory);
    chart.half = drives.size() > 1;
    charts.push_back(std::move(chart));
  }
  return charts;
}

std::optional<Chart> LostTimeChart(const ReportData& data, const ReportFacts& facts) {
  if (!data.stalls || data.stalls->start_s.empty()) return std::nullopt;
  const ReportStalls& stalls = *data.stalls;
  const bool known_lost = stalls.lost_s.size() == stalls.start_s.size();
  const double end = facts.seconds.value_or(MostOf(stalls.start_s));
  const double width = end / kStallBins;
  if (width <= 0) return std::nullopt;
  const char* const colors[] = {"var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)"};
  Chart chart;
  Column below(kStallBins, 0);  // bars lie on each other
  Json rows = Json::array();
  for (size_t cause = 0; cause < stalls.causes.size(); ++cause) {
    std::vector<bool> wanted;
    for (size_t c : stalls.cause) wanted.push_back(c == cause);
    const Column busy =
        BusyParts(stalls.start_s, known_lost ? stalls.lost_s : stalls.seconds, wanted, 0, end, kStallBins);
    if (MostOf(busy) == 0) continue;
    chart.legend.push_back({CauseText(stalls.causes[cause]), colors[cause % std::size(colors)]});
    for (size_t b = 0; b < busy.size(); ++b) {
      if (busy[b] <= 0) continue;
      rows.push_back(Json{{"t", Rounded(static_cast<double>(b) * width)},
                          {"u", Rounded(static_cast<double>(b + 1) * width)},
                          {"name", chart.legend.back().name},
                          {"v", Rounded(100 * below[b])},
                          {"w", Rounded(100 * (below[b] + busy[b]))}});
      below[b] += busy[b];
    }
  }
  if (rows.empty()) return std::nullopt;
  chart.key = "lost";
  chart.title = known_lost ? "Time lost, by cause" : "Waiting threads, by cause";
  chart.words = known_lost ? "Part of each stretch of time in which the GPU had nothing to do and waited:"
                           : "Part of each stretch of time in which a thread of the job waited:";
  chart.spec = Json{{"data", Values(std::move(rows))},
                    {"mark", {{"type", "rect"}, {"strokeWidth", 0}}},
                    {"encoding",
                     {{"x", TimeAxis("t", end)},
                      {"x2", {{"field", "u"}}},
                      {"y", Quantity("v", "% of the time")},
                      {"y2", {{"field", "w"}}},
                      {"fill", Colors("name", chart.legend)}}}};
  return chart;
}

std::optional<Chart> IterationsChart(const ReportData& data, const ReportFacts& facts) {
  if (!data.iterations || data.iterations->start_s.size() < 2) return std::nullopt;
  const ReportIterations& iterations = *data.iterations;
  const AxisUnit unit = AxisUnitFor(MostOf(iterations.seconds), Unit::kSeconds);
  Json rows = Json::array();
  for (size_t i = 0; i < iterations.start_s.size(); ++i)
    rows.push_back(
        Json{{"t", Rounded(iterations.start_s[i])}, {"v", Rounded(iterations.seconds[i] / unit.factor)}});
  Json mark = {{"type", "line"}, {"stroke", "var(--gpu)"}, {"strokeWidth", 1.5}};
  if (rows.size() <= kMaxPoints) mark["point"] = {{"fill", "var(--gpu)"}, {"size", 24}};
  Json layers = Json::array();
  layers.push_back(Json{{"data", Values(std::move(rows))},
                        {"mark", std::move(mark)},
                        {"encoding",
                         {{"x", TimeAxis("t", ChartEnd(data, 0))},
                          {"y", Quantity("v", absl::StrCat("one iteration, ", unit.name))}}}});
  Chart chart;
  chart.legend = {{"measured", "var(--gpu)", Mark::kLine}};
  if (facts.bound_s) {
    chart.legend.push_back({"bound: no plan is faster", "var(--limit)", Mark::kDashes});
    layers.push_back(Rule(*facts.bound_s / unit.factor, chart.legend.back()));
  }
  if (facts.ideal_s) {
    chart.legend.push_back({"kernels alone", "var(--soft)", Mark::kDashes});
    layers.push_back(Rule(*facts.ideal_s / unit.factor, chart.legend.back()));
  }
  chart.key = "iterations";
  chart.title = "How long each iteration took";
  chart.words = "Over the run. The first ones are slower: no plan is in force before iterations repeat.";
  chart.spec = Json{{"layer", std::move(layers)}};
  return chart;
}

}  // namespace spillway::integration
