#include "integration/cli/page/report_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "integration/cli/common/utf8.h"
#include "integration/cli/page/report_json.h"

namespace spillway::integration {
namespace {

constexpr char kIndent[] = "  ";

std::string Padded(const std::string& text, size_t columns, bool right) {
  const std::string space(columns - std::min(columns, ColumnsOf(text)), ' ');
  return right ? space + text : text + space;
}

std::string Line(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string MetricsText(const Section& section) {
  size_t widest = 0;
  for (const Figure& figure : section.metrics) widest = std::max(widest, ColumnsOf(figure.label));
  std::string text;
  for (const Figure& figure : section.metrics) {
    const std::string note = figure.note.empty() ? "" : absl::StrCat(" (", figure.note, ")");
    absl::StrAppend(&text,
                    Line(absl::StrCat(kIndent, Padded(figure.label, widest, false), kIndent,
                                      figure.value ? TextOf(figure) : "not known", WithoutControls(note))));
  }
  return text;
}

// Returns whether the column is of numbers, which are aligned to the right.
bool IsOfNumbers(const Table& table, size_t column) {
  if (table.columns[column].unit) return true;
  return std::ranges::any_of(
      table.rows, [column](const auto& row) { return column < row.size() && row[column].value.has_value(); });
}

std::string TableText(const Table& table) {
  std::vector<std::vector<std::string>> lines(1);
  for (const TableColumn& column : table.columns) lines[0].push_back(WithoutControls(column.name));
  for (const auto& row : table.rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (size_t c = 0; c < table.columns.size(); ++c)
      line.push_back(c < row.size() ? WithoutControls(TextOf(row[c], table.columns[c])) : "");
  }
  std::vector<size_t> widths(table.columns.size());
  for (const auto& line : lines) {
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], ColumnsOf(line[c]));
  }
  std::string text = table.title.empty() ? "" : absl::StrCat("\n", kIndent, table.title, "\n");
  for (const auto& line : lines) {
    std::string cells = kIndent;
    for (size_t c = 0; c < line.size(); ++c)
      absl::StrAppend(&cells, c == 0 ? "" : kIndent,
                      Padded(line[c], widths[c], c > 0 && IsOfNumbers(table, c)));
    absl::StrAppend(&text, Line(std::move(cells)));
  }
  return text;
}

}  // namespace

size_t ColumnsOf(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string ReportText(const ReportModel& model) {
  std::string text = absl::StrCat(model.command, ": ", WithoutControls(model.title), "\n");
  for (const std::string& sentence : model.verdict) absl::StrAppend(&text, WithoutControls(sentence), "\n");
  for (const Section& section : model.sections) {
    if (!section.heading.empty()) absl::StrAppend(&text, "\n", WithoutControls(section.heading), "\n");
    for (const std::string& words : section.words)
      absl::StrAppend(&text, kIndent, WithoutControls(words), "\n");
    absl::StrAppend(&text, MetricsText(section));
    for (const std::string& missing : section.missing)
      absl::StrAppend(&text, kIndent, WithoutControls(missing), "\n");
    for (const Table& table : section.tables) {
      if (!table.rows.empty()) absl::StrAppend(&text, TableText(table));
    }
  }
  return text;
}

}  // namespace spillway::integration
