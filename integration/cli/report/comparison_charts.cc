#include "integration/cli/report/comparison_charts.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "integration/cli/page/chart_parts.h"
#include "integration/cli/report/phase_text.h"
#include "integration/cli/report/report_bins.h"

namespace spillway::integration {
namespace {

using Mark = LegendEntry::Mark;

constexpr size_t kIterationBins = 240;
const char* const kKindColors[] = {"var(--out)", "var(--in)", "var(--disk)", "var(--host)", "var(--c4)"};

const char* KindColor(size_t kind) { return kKindColors[kind % std::size(kKindColors)]; }

// "2 MiB".
std::string PowerOfTwo(double bytes) {
  const AxisUnit unit = AxisUnitFor(bytes, Unit::kBytes);
  return absl::StrCat(bytes / unit.factor, " ", unit.name);
}

struct Window {
  double from = 0, seconds = 0;
  AxisUnit unit;
};

// Appends the rows of one line of the chart: the bins in which something went on.
void AppendBusy(const Column& busy, const Window& window, const std::string& name, Json* rows) {
  const double width = window.seconds / window.unit.factor / static_cast<double>(busy.size());
  for (size_t b = 0; b < busy.size(); ++b) {
    if (busy[b] <= 0) continue;
    rows->push_back(Json{{"t", Rounded(static_cast<double>(b) * width)},
                         {"u", Rounded(static_cast<double>(b + 1) * width)},
                         {"name", name},
                         {"v", Rounded(busy[b])}});
  }
}

Json PhaseLayers(const std::vector<ReportPhase>& phases, const Window& window) {
  Json rows = Json::array();
  for (size_t i = 0; i < phases.size(); ++i) {
    const double length = window.seconds / window.unit.factor;
    rows.push_back(Json{{"t", Rounded(phases[i].from * length)},
                        {"u", Rounded(phases[i].to * length)},
                        {"m", Rounded((phases[i].from + phases[i].to) / 2 * length)},
                        {"shade", i % 2 == 0 ? 0.16 : 0.3},
                        {"phase", PhaseLabel(phases[i])},
                        {"name", "phase"}});
  }
  const Json y = {{"field", "name"}, {"type", "nominal"}};
  Json bands = {{"data", Values(rows)},
                {"mark", {{"type", "rect"}, {"fill", "var(--soft)"}}},
                {"encoding",
                 {{"x", Quantity("t", "")},
                  {"x2", {{"field", "u"}}},
                  {"y", y},
                  {"fillOpacity", {{"field", "shade"}, {"type", "quantitative"}, {"scale", nullptr}}}}}};
  Json words = {{"data", Values(rows)},
                {"mark", {{"type", "text"}, {"fontSize", 11}}},
                {"encoding",
                 {{"x", Quantity("m", "")}, {"y", y}, {"text", {{"field", "phase"}, {"type", "nominal"}}}}}};
  return Json::array({std::move(bands), std::move(words)});
}

// Returns rows by kind of move and of time lost; `names` gets the kinds in the order of the chart with their
// colors.
Json BusyRows(const ReportData& data, const Window& window, std::vector<LegendEntry>* names) {
  Json rows = Json::array();
  const ReportMoves& moves = *data.moves;
  const double end = window.from + window.seconds;
  for (size_t kind = 0; kind < moves.kinds.size(); ++kind) {
    std::vector<bool> wanted;
    for (size_t k : moves.kind) wanted.push_back(k == kind);
    const size_t before = rows.size();
    AppendBusy(BusyParts(moves.start_s, moves.seconds, wanted, window.from, end, kIterationBins), window,
               MoveName(moves.kinds[kind]), &rows);
    if (rows.size() > before) names->push_back({MoveName(moves.kinds[kind]), KindColor(kind)});
  }
  if (data.stalls && data.stalls->lost_s.size() == data.stalls->start_s.size()) {
    const std::vector<bool> all(data.stalls->start_s.size(), true);
    const size_t before = rows.size();
    AppendBusy(BusyParts(data.stalls->start_s, data.stalls->lost_s, all, window.from, end, kIterationBins),
               window, "GPU waits", &rows);
    if (rows.size() > before) names->push_back({"GPU waits", "var(--limit)"});
  }
  return rows;
}

}  // namespace

std::string MoveName(const std::string& kind) {
  if (kind.find("_to_") == std::string::npos) return kind;
  return absl::StrReplaceAll(kind, {{"_to_", " → "}, {"gpu", "GPU"}});
}

const char* NameOf(WhatIfAxis axis) {
  switch (axis) {
    case WhatIfAxis::kGpuMemory: return "GPU memory";
    case WhatIfAxis::kHostMemory: return "host memory";
    case WhatIfAxis::kDisk: return "speed of the disk";
  }
  return "";
}

std::optional<Chart> OneIterationChart(const ReportData& data, const ReportFacts& facts) {
  if (!data.iterations || !data.moves) return std::nullopt;
  const auto shown = IterationToShow(*data.iterations, *data.moves, facts.seconds.value_or(0));
  if (!shown) return std::nullopt;
  Window window{data.iterations->start_s[*shown], data.iterations->seconds[*shown], {}};
  window.unit = AxisUnitFor(window.seconds, Unit::kSeconds);
  std::vector<LegendEntry> names;
  Json rows = BusyRows(data, window, &names);
  if (rows.empty()) return std::nullopt;
  Json order = Json::array();
  if (!data.phases.empty()) order.push_back("phase");
  for (const LegendEntry& entry : names) order.push_back(entry.name);
  Json x = Quantity("t", absl::StrCat("time in the iteration, ", window.unit.name));
  x["scale"] = {{"domain", Json::array({0, Rounded(window.seconds / window.unit.factor)})}, {"nice", false}};
  Json y = {{"field", "name"},
            {"type", "nominal"},
            {"title", nullptr},
            {"scale", {{"domain", order}}},
            {"axis", {{"grid", false}, {"ticks", false}}}};
  Json colors = Colors("name", names);
  Json opacity = Quantity("v", "");
  opacity["scale"] = {{"domain", Json::array({0, 1})}, {"range", Json::array({0.15, 1})}};
  opacity["legend"] = nullptr;
  Json layers = Json::array();
  layers.push_back(Json{{"data", Values(std::move(rows))},
                        {"mark", {{"type", "rect"}, {"strokeWidth", 0}}},
                        {"encoding",
                         {{"x", x},
                          {"x2", {{"field", "u"}}},
                          {"y", y},
                          {"fill", std::move(colors)},
                          {"fillOpacity", std::move(opacity)}}}});
  if (!data.phases.empty()) {
    for (Json& layer : PhaseLayers(data.phases, window)) layers.push_back(std::move(layer));
  }
  Chart chart;
  chart.key = "iteration";
  chart.title = absl::StrCat("One iteration, from ", Shown(window.from, Unit::kSeconds), " on");
  chart.words =
      "When each kind of transfer was under way, and when the GPU had to wait; paler: only part of that "
      "time.";
  absl::StrAppend(&chart.words, PhaseText(data.phases));
  chart.spec = Json{{"layer", std::move(layers)}};
  chart.height = static_cast<int>(60 + 30 * order.size());
  return chart;
}

std::optional<Chart> MoveSizesChart(const ReportData& data) {
  if (!data.moves) return std::nullopt;
  const std::vector<MoveSizeClass> classes = MoveSizeClasses(*data.moves);
  if (classes.empty()) return std::nullopt;
  double most = 0;
  for (const MoveSizeClass& one : classes) most = std::max(most, one.fast);
  const AxisUnit unit = AxisUnitFor(most, Unit::kBytesPerSecond);
  Json rows = Json::array();
  std::vector<LegendEntry> names;
  for (const MoveSizeClass& one : classes) {
    const std::string name = MoveName(data.moves->kinds[one.kind]);
    if (names.empty() || names.back().name != name) names.push_back({name, KindColor(one.kind)});
    rows.push_back(Json{{"size", PowerOfTwo(one.least_bytes)},
                        {"b", one.least_bytes},
                        {"name", name},
                        {"low", Rounded(one.slow / unit.factor)},
                        {"v", Rounded(one.median / unit.factor)},
                        {"high", Rounded(one.fast / unit.factor)},
                        {"moves", one.moves}});
  }
  Json x = {{"field", "size"},
            {"type", "ordinal"},
            {"title", "size of the move, from"},
            {"sort", {{"field", "b"}}},
            {"axis", {{"labelAngle", 0}, {"labelOverlap", true}}}};
  Json offset = {{"field", "name"}, {"type", "nominal"}};
  Json colors = Colors("name", names);
  Json spans = {{"mark", {{"type", "rule"}, {"strokeWidth", 2}, {"opacity", 0.5}}},
                {"encoding",
                 {{"x", x},
                  {"xOffset", offset},
                  {"y", Quantity("low", unit.name)},
                  {"y2", {{"field", "high"}}},
                  {"color", colors}}}};
  Json points = {
      {"mark", {{"type", "point"}, {"filled", true}, {"size", 60}, {"opacity", 1}, {"tooltip", true}}},
      {"encoding",
       {{"x", x},
        {"xOffset", offset},
        {"y", Quantity("v", unit.name)},
        {"color", colors},
        {"shape", {{"field", "name"}, {"type", "nominal"}, {"legend", nullptr}}}}}};
  Chart chart;
  chart.legend = names;
  chart.key = "sizes";
  chart.title = "How fast moves went, by size";
  chart.words = "Median and the middle 80 % of the moves of each size.";
  chart.spec =
      Json{{"data", Values(std::move(rows))}, {"layer", Json::array({std::move(spans), std::move(points)})}};
  return chart;
}

std::optional<Chart> BoundChart(const ReportFacts& facts, const WhatIf& what_if, const ReportData& data) {
  const bool simulated = what_if.missing.empty();
  const std::pair<const char*, Known> times[] = {
      {"kernels alone", facts.ideal_s},
      {"bound", facts.bound_s},
      {"simulated", simulated ? Known(what_if.iteration_s) : std::nullopt},
      {"plan's promise", data.metrics.plan_s},
      {"measured", facts.iteration_s}};
  double most = 0;
  for (const auto& [name, seconds] : times) most = std::max(most, seconds.value_or(0));
  const AxisUnit unit = AxisUnitFor(most, Unit::kSeconds);
  Json rows = Json::array(), order = Json::array();
  for (const auto& [name, seconds] : times) {
    if (!seconds) continue;
    order.push_back(name);
    rows.push_back(Json{
        {"name", name}, {"v", Rounded(*seconds / unit.factor)}, {"text", Shown(*seconds, Unit::kSeconds)}});
  }
  if (rows.size() < 2) return std::nullopt;
  Json x = Quantity("v", absl::StrCat("one iteration, ", unit.name));
  x["scale"] = {{"domain", Json::array({0, Rounded(most / unit.factor * 1.12)})}, {"nice", false}};
  Json y = {{"field", "name"},
            {"type", "nominal"},
            {"sort", order},
            {"title", nullptr},
            {"axis", {{"ticks", false}}}};
  Json fill = {{"condition", {{"test", "datum.name == 'measured'"}, {"value", "var(--gpu)"}}},
               {"value", "var(--quiet)"}};
  Json bars = {{"mark", {{"type", "bar"}, {"height", {{"band", 0.7}}}}},
               {"encoding", {{"x", x}, {"y", y}, {"color", std::move(fill)}}}};
  Json words = {{"mark", {{"type", "text"}, {"align", "left"}, {"dx", 5}}},
                {"encoding", {{"x", x}, {"y", y}, {"text", {{"field", "text"}, {"type", "nominal"}}}}}};
  Chart chart;
  chart.key = "bound";
  chart.title = "Time of an iteration, measured and possible";
  chart.words = "No plan on this machine beats the bound.";
  chart.spec =
      Json{{"data", Values(std::move(rows))}, {"layer", Json::array({std::move(bars), std::move(words)})}};
  chart.height = 190;
  return chart;
}

std::optional<Chart> WhatIfChart(const WhatIf& what_if, const WhatIfSweep& sweep, const ReportFacts& facts) {
  const Unit kind = sweep.axis == WhatIfAxis::kDisk ? Unit::kBytesPerSecond : Unit::kBytes;
  double most = 0, longest = what_if.iteration_s;
  size_t runs = 0;
  for (const WhatIfPoint& point : sweep.points) {
    if (!point.runs) continue;
    ++runs;
    most = std::max(most, point.value);
    longest = std::max(longest, point.iteration_s);
  }
  if (runs < 2) return std::nullopt;
  const AxisUnit x_unit = AxisUnitFor(most, kind), y_unit = AxisUnitFor(longest, Unit::kSeconds);
  Json rows = Json::array();
  for (const WhatIfPoint& point : sweep.points) {
    if (point.runs)
      rows.push_back(Json{{"x", Rounded(point.value / x_unit.factor)},
                          {"y", Rounded(point.iteration_s / y_unit.factor)},
                          {"own", point.factor == 1}});
  }
  Json x = Quantity("x", absl::StrCat(NameOf(sweep.axis), ", ", x_unit.name));
  x["scale"] = {{"zero", sweep.axis != WhatIfAxis::kGpuMemory}};
  const Json y = Quantity("y", absl::StrCat("one iteration, ", y_unit.name));
  Json line = {{"mark", {{"type", "line"}, {"stroke", "var(--gpu)"}}}, {"encoding", {{"x", x}, {"y", y}}}};
  Json size = {{"condition", {{"test", "datum.own"}, {"value", 130}}}, {"value", 40}};
  Json fill = {{"condition", {{"test", "datum.own"}, {"value", "var(--limit)"}}}, {"value", "var(--gpu)"}};
  Json points = {{"mark", {{"type", "point"}, {"filled", true}, {"opacity", 1}, {"tooltip", true}}},
                 {"encoding", {{"x", x}, {"y", y}, {"size", std::move(size)}, {"color", std::move(fill)}}}};
  Json layers = Json::array({std::move(line), std::move(points)});
  Chart chart;
  chart.legend = {{"simulated", "var(--gpu)", Mark::kLine}, {"this run's machine", "var(--limit)"}};
  if (facts.ideal_s) {
    chart.legend.push_back({"kernels alone", "var(--soft)", Mark::kDashes});
    layers.push_back(Rule(*facts.ideal_s / y_unit.factor, chart.legend.back()));
  }
  chart.key = absl::StrCat("what_if_", sweep.axis == WhatIfAxis::kGpuMemory    ? "gpu"
                                       : sweep.axis == WhatIfAxis::kHostMemory ? "host"
                                                                               : "disk");
  chart.title =
      absl::StrCat("Other ", sweep.axis == WhatIfAxis::kDisk ? "speeds of the disk" : NameOf(sweep.axis));
  chart.spec = Json{{"data", Values(std::move(rows))}, {"layer", std::move(layers)}};
  chart.half = true;
  return chart;
}

}  // namespace spillway::integration
