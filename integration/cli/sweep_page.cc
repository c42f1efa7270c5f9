#include "integration/cli/sweep_page.h"

#include <nlohmann/json.hpp>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "integration/cli/common/units.h"
#include "integration/cli/line_chart.h"
#include "integration/cli/simulate_report.h"

namespace spillway::integration {
namespace {

constexpr char kHead[] = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Spillway: what if</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --rule: #d8dde3; --page: #ffffff; --a: #1f6fd1; --b: #c2570c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ebee; --soft: #a3adb8; --rule: #3a424b; --page: #16191d; --a: #6aaeff; --b: #f2a05b; }
}
body { margin: 2rem auto; max-width: 68rem; padding: 0 1rem; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
svg { display: block; width: 100%; max-width: 760px; margin: 1rem 0; font: 12px system-ui, sans-serif; }
svg text { fill: var(--soft); } svg .title { fill: var(--ink); font-size: 14px; font-weight: 600; } svg .name { fill: var(--ink); }
svg .none { fill: var(--b); font-size: 20px; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.line0 path { stroke: var(--a); } .line1 path { stroke: var(--b); stroke-dasharray: 6 4; }
.line0 path, .line1 path { fill: none; stroke-width: 2; } .line0 circle { fill: var(--a); r: 6px; } .line1 circle { fill: var(--b); r: 3.5px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--rule); text-align: right; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; } th:first-child, td:first-child { text-align: left; white-space: nowrap; }
td.words { text-align: left; }
p.soft { color: var(--soft); max-width: 46rem; }
</style>
</head>
<body>
<h1>Spillway: what if</h1>
)";

constexpr char kColumns[] =
    "<tr><th>setting</th><th>% of ideal</th><th>% of bound</th><th>iteration, s</th><th>waits for bytes, "
    "s</th>"
    "<th>waits for memory, s</th><th>host to GPU, GiB</th><th>SSD to GPU, GiB</th><th>GPU to host, GiB</th>"
    "<th>GPU to SSD, GiB</th><th>peak of host memory, GiB</th></tr>\n";

constexpr char kMeaning[] =
    "<p class=\"soft\">Ideal: nothing but the kernels, as on a GPU of endless memory. Bound: a time per "
    "iteration that no "
    "plan on that machine can beat; near 100&nbsp;% of it, only another machine helps. Moved bytes and waits "
    "are per "
    "iteration. What each option and number means: docs/simulate.md.</p>\n";

std::string AxisTitle(const SweepRow& row) {
  return absl::StrCat(row.option, row.unit == SweepUnit::kBytes ? ", GiB" : ", GB/s");
}

LineChart ChartOf(std::span<const SweepRow> rows) {
  LineChart chart;
  chart.x_title = AxisTitle(rows.front());
  chart.gap_words = "cannot run";
  for (const SweepRow& row : rows)
    chart.x.push_back(row.value / (row.unit == SweepUnit::kBytes ? kGiB : 1e9));
  return chart;
}

template <typename Value>
ChartLine LineOf(const std::string& name, std::span<const SweepRow> rows, const Value& value) {
  ChartLine line{name, {}};
  for (const SweepRow& row : rows)
    line.values.push_back(row.Ran() ? std::optional<double>(value(row.result)) : std::nullopt);
  return line;
}

std::string Charts(std::span<const SweepRow> rows) {
  LineChart speed = ChartOf(rows);
  speed.title = "How near an iteration comes to what is possible";
  speed.y_title = "percent";
  speed.y_most = 100;
  speed.lines = {
      LineOf("percent of ideal", rows,
             [](const SimulateResult& one) { return one.execution.PercentOfIdeal(); }),
      LineOf("percent of bound", rows, [](const SimulateResult& one) { return one.PercentOfBound(); })};
  LineChart bytes = ChartOf(rows);
  bytes.title = "What moves in an iteration";
  bytes.y_title = "GiB";
  bytes.lines = {LineOf("to the GPU", rows,
                        [](const SimulateResult& one) {
                          return (one.execution.traffic.host_to_gpu + one.execution.traffic.ssd_to_gpu) /
                                 kGiB;
                        }),
                 LineOf("from the GPU", rows, [](const SimulateResult& one) {
                   return (one.execution.traffic.gpu_to_host + one.execution.traffic.gpu_to_ssd) / kGiB;
                 })};
  return absl::StrCat(SvgOf(speed), SvgOf(bytes));
}

std::string TableRow(const SweepRow& row) {
  std::string html = absl::StrCat("<tr><td>", HtmlEscape(row.Setting()), "</td>");
  if (!row.Ran())
    return absl::StrCat(html, "<td class=\"words\" colspan=\"10\">cannot run: ", HtmlEscape(row.problem),
                        "</td></tr>\n");
  const policy::Execution& run = row.result.execution;
  for (double percent : {run.PercentOfIdeal(), row.result.PercentOfBound()})
    absl::StrAppendFormat(&html, "<td>%.2f</td>", percent);
  for (policy::Nanos time : {run.iteration, run.read_wait, run.memory_wait})
    absl::StrAppendFormat(&html, "<td>%.3f</td>", Seconds(time));
  for (double bytes : {run.traffic.host_to_gpu, run.traffic.ssd_to_gpu, run.traffic.gpu_to_host,
                       run.traffic.gpu_to_ssd, static_cast<double>(run.peak_host_bytes)})
    absl::StrAppendFormat(&html, "<td>%.2f</td>", bytes / kGiB);
  return absl::StrCat(html, "</tr>\n");
}

// The charts and the table of one sweep: rows of one option.
std::string SweepSection(std::span<const SweepRow> rows) {
  std::string html = absl::StrCat("<h2>", HtmlEscape(rows.front().option), "</h2>\n", Charts(rows),
                                  "<div class=\"wide\"><table>\n", kColumns);
  for (const SweepRow& row : rows) absl::StrAppend(&html, TableRow(row));
  return absl::StrCat(html, "</table></div>\n");
}

std::string OptionsTable(const SimulateOptions& options) {
  std::string html = "<h2>Options, where not swept</h2>\n<table>\n";
  const nlohmann::json list = OptionsJson(options);
  for (const auto& [name, value] : list.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    absl::StrAppend(&html, "<tr><td>--", name, "</td><td class=\"words\">", HtmlEscape(text), "</td></tr>\n");
  }
  return html + "</table>\n";
}

// A trace's name may hold what would end the element.
std::string Data(const SimulateOptions& options, const std::vector<SweepRow>& rows) {
  return absl::StrCat("<script type=\"application/json\" id=\"data\">\n",
                      absl::StrReplaceAll(SweepJson(options, rows), {{"</", "<\\/"}}), "</script>\n");
}

}  // namespace

std::string SweepPage(const SimulateOptions& options, const std::vector<SweepRow>& rows) {
  std::string html = kHead;
  if (!rows.empty()) {
    const SimulateResult* shown = nullptr;
    for (const SweepRow& row : rows) shown = row.Ran() ? &row.result : shown;
    absl::StrAppend(&html, "<p>", HtmlEscape(options.trace));
    if (shown != nullptr)
      absl::StrAppendFormat(&html,
                            ": %d kernels, %d tensors, ideal iteration %.3f s, %.2f GiB live at the peak",
                            shown->kernels, shown->tensors, Seconds(shown->execution.ideal),
                            static_cast<double>(shown->peak_live_bytes) / kGiB);
    absl::StrAppend(&html, "</p>\n", kMeaning);
  }
  const std::span<const SweepRow> all(rows);
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end].sweep == rows[begin].sweep) ++end;
    absl::StrAppend(&html, SweepSection(all.subspan(begin, end - begin)));
  }
  return absl::StrCat(html, OptionsTable(options), Data(options, rows), "</body>\n</html>\n");
}

}  // namespace spillway::integration
