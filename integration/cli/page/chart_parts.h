// Pieces of Vega-Lite that several charts share: axes, colors, reference lines. For all charts: those of a
// report, of its iterations, and of a sweep. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_CHART_PARTS_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_CHART_PARTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/cli/page/report_model.h"

namespace spillway::integration {

using Json = nlohmann::json;

// Returns a number as it is drawn: five figures are finer than a pixel.
double Rounded(double value);

Json Values(Json rows);  // {"values": rows}
Json Quantity(const std::string& field, const std::string& title);
// Returns an axis of the run's time in seconds, from 0 to its end.
Json TimeAxis(const std::string& field, double end_s);
// Returns colors by name, in this order. The page has the legend.
Json Colors(const std::string& field, const std::vector<LegendEntry>& names);
// Returns a horizontal line at `y`, in the style of its legend entry.
Json Rule(double y, const LegendEntry& entry);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_CHART_PARTS_H_
