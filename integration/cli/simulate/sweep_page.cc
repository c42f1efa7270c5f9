#include "integration/cli/simulate/sweep_page.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/common/units.h"
#include "integration/cli/page/chart_parts.h"
#include "integration/cli/simulate/simulate_report.h"

namespace spillway::integration {
namespace {

constexpr char kMeaning[] =
    "Ideal: the kernels alone, as on a GPU with unlimited memory. Bound: a time per iteration that no plan "
    "on that machine can beat; near 100 % of it, only another machine helps. The share of a quick bound is "
    "a minimum: another bound may be longer. Moved bytes and waits are per iteration. docs/simulate.md "
    "explains each option and number.";

constexpr double kGb = 1e9;

struct Column {
  const char* name;
  const char* format;
  double (*value)(const SimulateResult& one);
};

const policy::Execution& ExecutionOf(const SimulateResult& one) { return one.execution; }

constexpr Column kColumns[] = {
    {"% of ideal", "%.2f", [](const SimulateResult& one) { return ExecutionOf(one).PercentOfIdeal(); }},
    {"% of bound", "%.2f", [](const SimulateResult& one) { return one.PercentOfBound(); }},
    {"iteration, s", "%.3f", [](const SimulateResult& one) { return Seconds(ExecutionOf(one).iteration); }},
    {"waits for bytes, s", "%.3f",
     [](const SimulateResult& one) { return Seconds(ExecutionOf(one).read_wait); }},
    {"waits for memory, s", "%.3f",
     [](const SimulateResult& one) { return Seconds(ExecutionOf(one).memory_wait); }},
    {"host to GPU, GiB", "%.2f",
     [](const SimulateResult& one) { return ExecutionOf(one).traffic.host_to_gpu / kGiB; }},
    {"SSD to GPU, GiB", "%.2f",
     [](const SimulateResult& one) { return ExecutionOf(one).traffic.ssd_to_gpu / kGiB; }},
    {"GPU to host, GiB", "%.2f",
     [](const SimulateResult& one) { return ExecutionOf(one).traffic.gpu_to_host / kGiB; }},
    {"GPU to SSD, GiB", "%.2f",
     [](const SimulateResult& one) { return ExecutionOf(one).traffic.gpu_to_ssd / kGiB; }},
    {"peak of host memory, GiB", "%.2f",
     [](const SimulateResult& one) { return static_cast<double>(ExecutionOf(one).peak_host_bytes) / kGiB; }}};

struct Line {
  LegendEntry legend;
  double (*value)(const SimulateResult& one);
};

const Line kSpeed[] = {{{"percent of ideal", "var(--gpu)", LegendEntry::Mark::kLine}, kColumns[0].value},
                       {{"percent of bound", "var(--host)", LegendEntry::Mark::kLine}, kColumns[1].value}};
const Line kMoved[] = {
    {{"to the GPU", "var(--in)", LegendEntry::Mark::kLine},
     [](const SimulateResult& one) { return kColumns[5].value(one) + kColumns[6].value(one); }},
    {{"from the GPU", "var(--out)", LegendEntry::Mark::kLine},
     [](const SimulateResult& one) { return kColumns[7].value(one) + kColumns[8].value(one); }}};

// Draws lines over the swept option, on an axis up to `most` if that is given. A line has a gap, with a cross
// at its foot, for a machine that cannot run the job.
Chart LinesOver(std::span<const SweepRow> rows, std::span<const Line> lines, const char* unit,
                std::optional<double> most = std::nullopt) {
  const bool bytes = rows.front().unit == SweepUnit::kBytes;
  Json points = Json::array(), gaps = Json::array();
  Chart chart;
  for (const Line& line : lines) chart.legend.push_back(line.legend);
  for (const SweepRow& row : rows) {
    const double x = Rounded(row.value / (bytes ? kGiB : kGb));
    if (!row.Ran()) gaps.push_back(Json{{"x", x}, {"v", 0}});
    for (const Line& line : lines) {
      points.push_back(Json{{"x", x},
                            {"name", line.legend.name},
                            {"v", row.Ran() ? Json(Rounded(line.value(row.result))) : Json()}});
    }
  }
  Json x = Quantity("x", absl::StrCat(rows.front().option, bytes ? ", GiB" : ", GB/s"));
  x["scale"] = {{"zero", false}};
  Json y = Quantity("v", unit);
  if (most) y["scale"] = {{"domain", Json::array({0, *most})}};
  Json encoding = {{"x", x}, {"y", y}, {"color", Colors("name", chart.legend)}};
  Json layers =
      Json::array({Json{{"mark", {{"type", "line"}}}, {"encoding", encoding}},
                   Json{{"mark", {{"type", "point"}, {"filled", true}, {"opacity", 1}, {"tooltip", true}}},
                        {"encoding", encoding}}});
  if (!gaps.empty()) {
    layers.push_back(Json{{"data", Values(std::move(gaps))},
                          {"mark", {{"type", "text"}, {"text", "×"}, {"fontSize", 18}, {"dy", -6}}},
                          {"encoding", {{"x", x}, {"y", y}}}});
    chart.words = "×: the job cannot run there.";
  }
  chart.spec = Json{{"data", Values(std::move(points))}, {"layer", std::move(layers)}};
  chart.half = true;
  return chart;
}

Table TableOf(std::span<const SweepRow> rows, const std::string& key) {
  Table table{key, "", {{"setting", {}}}, {}};
  for (const Column& column : kColumns) table.columns.push_back({column.name, Unit::kCount});
  for (const SweepRow& row : rows) {
    std::vector<Cell>& cells = table.rows.emplace_back();
    cells.push_back({row.Setting(), {}});
    if (!row.Ran()) cells.push_back({"cannot run", {}});
    if (!row.Ran()) continue;
    for (const Column& column : kColumns) {
      const auto format = absl::ParsedFormat<'f'>::New(column.format);
      cells.push_back({absl::StrFormat(*format, column.value(row.result)), {}});
    }
  }
  return table;
}

// Makes the charts and the table of one sweep: rows of one option.
Section SweepSection(std::span<const SweepRow> rows) {
  Section section;
  section.key = absl::StrCat("sweep_", rows.front().sweep);
  section.heading = rows.front().option;
  Chart speed = LinesOver(rows, kSpeed, "percent", 100);
  speed.key = section.key + "_speed";
  speed.title = "Speed of an iteration, of the possible";
  Chart moved = LinesOver(rows, kMoved, "GiB");
  moved.key = section.key + "_moved";
  moved.title = "Bytes moved in an iteration";
  section.charts = {std::move(speed), std::move(moved)};
  section.tables.push_back(TableOf(rows, section.key));
  for (const SweepRow& row : rows) {
    if (!row.Ran()) section.missing.push_back(absl::StrCat(row.Setting(), " cannot run: ", row.problem));
  }
  return section;
}

Section OptionsSection(const SimulateOptions& options) {
  Section section;
  section.key = "options";
  section.heading = "Options that are not swept";
  Table table{"options", "", {{"option", {}}, {"value", {}}}, {}};
  const Json list = OptionsJson(options);
  for (const auto& [name, value] : list.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    table.rows.push_back({{absl::StrCat("--", name), {}}, {text, {}}});
  }
  section.tables.push_back(std::move(table));
  return section;
}

}  // namespace

ReportModel SweepModel(const SimulateOptions& options, const std::vector<SweepRow>& rows) {
  ReportModel model;
  model.command = "spillway simulate";
  model.title = options.trace;
  model.verdict = {"What if"};
  for (const SweepRow& row : rows) {
    if (!row.Ran()) continue;
    model.verdict.push_back(
        absl::StrFormat("%d kernels, %d tensors, ideal iteration %.3f s, %.2f GiB live at the peak.",
                        row.result.kernels, row.result.tensors, Seconds(row.result.execution.ideal),
                        static_cast<double>(row.result.peak_live_bytes) / kGiB));
    break;
  }
  const std::span<const SweepRow> all(rows);
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end].sweep == rows[begin].sweep) ++end;
    model.sections.push_back(SweepSection(all.subspan(begin, end - begin)));
  }
  if (!model.sections.empty()) model.sections.front().words.push_back(kMeaning);
  model.sections.push_back(OptionsSection(options));
  return model;
}

}  // namespace spillway::integration
