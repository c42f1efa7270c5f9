#include "integration/cli/page/report_json.h"

namespace spillway::integration {
namespace {

nlohmann::json FigureJson(const Figure& figure) {
  nlohmann::json json = {{"label", figure.label}, {"unit", NameOf(figure.unit)}};
  if (!figure.note.empty()) json[figure.value ? "note" : "absent"] = figure.note;
  if (!figure.value) return json;
  json["value"] = *figure.value;
  json["shown"] = TextOf(figure);
  return json;
}

nlohmann::json TableJson(const Table& table) {
  nlohmann::json columns = nlohmann::json::array(), rows = nlohmann::json::array();
  for (const TableColumn& column : table.columns)
    columns.push_back({{"name", column.name}, {"unit", column.unit ? NameOf(*column.unit) : "text"}});
  for (const auto& row : table.rows) {
    nlohmann::json cells = nlohmann::json::array();
    for (size_t c = 0; c < row.size(); ++c) {
      nlohmann::json cell = {{"shown", TextOf(row[c], table.columns[c])}};
      if (row[c].value) cell["value"] = *row[c].value;
      cells.push_back(std::move(cell));
    }
    rows.push_back(std::move(cells));
  }
  return {{"title", table.title}, {"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

}  // namespace

std::string TextOf(const Figure& figure) { return figure.value ? Shown(*figure.value, figure.unit) : ""; }

std::string TextOf(const Cell& cell, const TableColumn& column) {
  return cell.value && column.unit ? Shown(*cell.value, *column.unit) : cell.text;
}

std::string ReportMetricsJson(const ReportModel& model) {
  nlohmann::json sections = nlohmann::json::object();
  for (const Section& section : model.sections) {
    nlohmann::json metrics = nlohmann::json::object(), tables = nlohmann::json::object();
    nlohmann::json charts = nlohmann::json::array();
    for (const Figure& figure : section.metrics) metrics[figure.key] = FigureJson(figure);
    for (const Table& table : section.tables) tables[table.key] = TableJson(table);
    for (const Chart& chart : section.charts) charts.push_back(chart.key);
    sections[section.key] = {{"heading", section.heading},  {"figures", std::move(metrics)},
                             {"tables", std::move(tables)}, {"charts", std::move(charts)},
                             {"words", section.words},      {"missing", section.missing}};
  }
  const nlohmann::json json = {{"format", "spillway-report-figures"},
                               {"version", 1},
                               {"title", model.title},
                               {"verdict", model.verdict},
                               {"sections", std::move(sections)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::integration
