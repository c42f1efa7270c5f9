// LineChart: lines over a number, as SVG text for a page. Knows nothing of what it shows; the page sets the
// colours of the classes line0, line1, grid, axis and none. For sweep_page. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_LINE_CHART_H_
#define SPILLWAY_INTEGRATION_CLI_LINE_CHART_H_

#include <optional>
#include <string>
#include <vector>

namespace spillway::integration {

struct ChartLine {
  std::string name;
  std::vector<std::optional<double>> values;  // one for each x; none: a gap
};

struct LineChart {
  std::string title;
  std::string x_title, y_title;  // with their units
  std::vector<double> x;         // ascending
  std::vector<ChartLine> lines;
  std::optional<double> y_most;  // the axis' end; none: a round number above the greatest value
  std::string gap_words;         // what a gap means, at its mark
};

// An <svg> element. `chart` has at least one x.
std::string SvgOf(const LineChart& chart);

// `text` as the text of an element or attribute.
std::string HtmlEscape(const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_LINE_CHART_H_
