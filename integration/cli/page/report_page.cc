#include "integration/cli/page/report_page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "integration/cli/page/report_json.h"
#include "integration/cli/page/report_style.h"

namespace spillway::integration {
namespace {

// No request or embedding is allowed; only scripts in the page itself run.
constexpr char kPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri "
    "'none'; "
    "form-action 'none'";

// Returns `text` as the text of an element; control characters, which HTML forbids, become a replacement.
std::string Html(const std::string& text) {
  std::string clean;
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
      clean += "\xEF\xBF\xBD";
    else
      clean += c;
  }
  return absl::StrReplaceAll(clean, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Returns JSON for the inside of a <script>: without a <, nothing in it can end the element.
std::string InScript(const std::string& json) { return absl::StrReplaceAll(json, {{"<", "\\u003c"}}); }

std::string FigureHtml(const Figure& figure) {
  std::string html = absl::StrCat("<div><dt>", Html(figure.label), "</dt><dd data-figure=\"", figure.key,
                                  "\">", Html(TextOf(figure)), "</dd>");
  if (!figure.note.empty()) absl::StrAppend(&html, "<small>", Html(figure.note), "</small>");
  return absl::StrCat(html, "</div>\n");
}

std::string MetricsHtml(const Section& section) {
  std::string known, unknown;
  for (const Figure& figure : section.metrics) {
    if (figure.value)
      absl::StrAppend(&known, FigureHtml(figure));
    else
      absl::StrAppend(&unknown, "<p class=\"missing\" data-absent=\"", figure.key,
                      "\">Not known: ", Html(figure.label), " (", Html(figure.note), ").</p>\n");
  }
  return absl::StrCat(known.empty() ? "" : absl::StrCat("<dl>\n", known, "</dl>\n"), unknown);
}

std::string LegendHtml(const Chart& chart) {
  std::string html;
  for (const LegendEntry& entry : chart.legend) {
    const char* const mark = entry.mark == LegendEntry::Mark::kArea   ? "area"
                             : entry.mark == LegendEntry::Mark::kLine ? "line"
                                                                      : "dashes";
    absl::StrAppend(&html, "<li><i class=\"", mark, "\" style=\"color:", entry.color, "\"></i>",
                    Html(entry.name), "</li>");
  }
  return html.empty() ? "" : absl::StrCat("<ul class=\"legend\">", html, "</ul>\n");
}

std::string ChartHtml(const Chart& chart) {
  const std::string spec = chart.spec.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return absl::StrCat("<figure data-chart=\"", chart.key, "\"", chart.half ? " class=\"half\"" : "",
                      ">\n<figcaption>", Html(chart.title), "<span>", Html(chart.words),
                      "</span></figcaption>\n", LegendHtml(chart), "<div class=\"plot\" data-height=\"",
                      chart.height, "\"></div>\n<script type=\"application/json\">", InScript(spec),
                      "</script>\n</figure>\n");
}

std::string TableHtml(const Table& table) {
  std::string html = absl::StrCat("<div class=\"wide\"><table data-table=\"", table.key, "\">\n");
  if (!table.title.empty()) absl::StrAppend(&html, "<caption>", Html(table.title), "</caption>\n");
  absl::StrAppend(&html, "<thead><tr>");
  for (const TableColumn& column : table.columns)
    absl::StrAppend(&html, column.unit ? "<th>" : "<th class=\"words\">", Html(column.name), "</th>");
  absl::StrAppend(&html, "</tr></thead>\n<tbody>\n");
  for (const auto& row : table.rows) {
    absl::StrAppend(&html, "<tr>");
    for (size_t c = 0; c < row.size(); ++c)
      absl::StrAppend(&html, table.columns[c].unit ? "<td>" : "<td class=\"words\">",
                      Html(TextOf(row[c], table.columns[c])), "</td>");
    absl::StrAppend(&html, "</tr>\n");
  }
  return absl::StrCat(html, "</tbody>\n</table></div>\n");
}

std::string SectionHtml(const Section& section) {
  std::string html = absl::StrCat("<section id=\"", section.key, "\">\n");
  if (!section.heading.empty()) absl::StrAppend(&html, "<h2>", Html(section.heading), "</h2>\n");
  for (const std::string& words : section.words) absl::StrAppend(&html, "<p>", Html(words), "</p>\n");
  absl::StrAppend(&html, MetricsHtml(section));
  for (const std::string& missing : section.missing)
    absl::StrAppend(&html, "<p class=\"missing\">", Html(missing), "</p>\n");
  if (!section.charts.empty()) {
    absl::StrAppend(&html, "<div class=\"charts\">\n");
    for (const Chart& chart : section.charts) absl::StrAppend(&html, ChartHtml(chart));
    absl::StrAppend(&html, "</div>\n");
  }
  if (!section.tables.empty()) absl::StrAppend(&html, "<div class=\"tables\">\n");
  for (const Table& table : section.tables) absl::StrAppend(&html, TableHtml(table));
  if (!section.tables.empty()) absl::StrAppend(&html, "</div>\n");
  return absl::StrCat(html, "</section>\n");
}

std::string HeadHtml(const ReportModel& model) {
  std::string html = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"",
      kPolicy,
      "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>Spillway: ",
      Html(model.title), "</title>\n<style>", kReportStyle, "</style>\n</head>\n<body>\n");
  absl::StrAppend(&html, "<header>\n<p class=\"command\">", model.command, ": ", Html(model.title), "</p>\n");
  std::string sentences;
  for (size_t s = 1; s < model.verdict.size(); ++s)
    absl::StrAppend(&sentences, s > 1 ? " " : "", Html(model.verdict[s]));
  if (!model.verdict.empty()) absl::StrAppend(&html, "<h1>", Html(model.verdict.front()), "</h1>\n");
  if (!sentences.empty()) absl::StrAppend(&html, "<p class=\"verdict\">", sentences, "</p>\n");
  return absl::StrCat(html,
                      "</header>\n<noscript><p class=\"problem\">The charts need JavaScript; all figures and "
                      "tables are here without it.</p></noscript>\n<main>\n");
}

}  // namespace

std::string ReportPage(const ReportModel& model, const std::string& data,
                       const std::string& drawing_library) {
  std::string html = HeadHtml(model);
  for (const Section& section : model.sections) absl::StrAppend(&html, SectionHtml(section));
  absl::StrAppend(&html, "</main>\n<script type=\"application/json\" id=\"data\">\n", InScript(data),
                  "</script>\n");
  // A script of a library may have the end of its own element in a string.
  absl::StrAppend(&html, "<script>", absl::StrReplaceAll(drawing_library, {{"</script", "<\\/script"}}),
                  "</script>\n<script>", kReportScript, "</script>\n");
  return absl::StrCat(html, "</body>\n</html>\n");
}

}  // namespace spillway::integration
