// The contents of a report before it is a page, JSON or text: sections of figures, tables, charts and
// sentences. All forms are made from the same model, so they cannot differ. report_sections, ranks_page,
// changes_page and sweep_page fill it; report_page, report_json and report_text show it. Data only; nothing
// here can fail.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_MODEL_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_MODEL_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/cli/page/report_units.h"

namespace spillway::integration {

// One number with its name. A note gives the reason if there is no value.
struct Figure {
  std::string key;    // of JSON
  std::string label;  // of the page
  std::optional<double> value;
  Unit unit = Unit::kCount;
  std::string note;  // how it was found, or why it is not known
};

// A cell of text, or of a number; neither: not known.
struct Cell {
  std::string text;
  std::optional<double> value;
};

inline Cell TextCell(std::string text) { return {std::move(text), std::nullopt}; }
inline Cell NumberCell(std::optional<double> value) { return {"", value}; }

struct TableColumn {
  std::string name;
  std::optional<Unit> unit;  // none: text
};

struct Table {
  std::string key, title;
  std::vector<TableColumn> columns;
  std::vector<std::vector<Cell>> rows;
};

struct LegendEntry {
  enum class Mark { kArea, kLine, kDashes };
  std::string name, color;
  Mark mark = Mark::kArea;
};

struct Chart {
  std::string key, title, words;  // words: a sentence for its readers
  std::vector<LegendEntry> legend;
  nlohmann::json spec;  // of Vega-Lite, without size and theme
  int height = 220;
  bool half = false;  // two stand side by side if the page is wide
};

struct Section {
  std::string key, heading;
  std::vector<std::string> words;    // a paragraph each
  std::vector<std::string> missing;  // what this section cannot show, and why
  std::vector<Figure> metrics;
  std::vector<Chart> charts;
  std::vector<Table> tables;
};

struct ReportModel {
  std::string command = "spillway report";  // the command that makes the page
  std::string title;
  std::vector<std::string> verdict;  // sentences; the first is the headline
  std::vector<Section> sections;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_MODEL_H_
