// Pieces of Vega-Lite that several charts share: axes, colors, reference lines. For report_charts and
// comparison_charts. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_CHART_PARTS_H_
#define SPILLWAY_INTEGRATION_CLI_CHART_PARTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/cli/report_data.h"
#include "integration/cli/report_model.h"

namespace spillway::integration {

using Json = nlohmann::json;

// Returns a number as it is drawn: five figures are finer than a pixel.
double Rounded(double value);

Json Values(Json rows);  // {"values": rows}
Json Quantity(const std::string& field, const std::string& title);
// Returns an axis of the run's time in seconds, from 0 to its end.
Json TimeAxis(const std::string& field, double end_s);
// Returns colors by name, in this order. The page has the legend.
Json Colours(const std::string& field, const std::vector<LegendEntry>& names);
// Returns a horizontal line at `y`, in the style of its legend entry.
Json Rule(double y, const LegendEntry& entry);

// Returns the phase's name in a chart, "backward?" for a guessed one; empty if the phase is too short for a
// label.
std::string PhaseLabel(const ReportPhase& phase);
// Returns a part of the chart's text: where phases come from, and which part of them is a guess.
std::string PhaseWords(const std::vector<ReportPhase>& phases);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_CHART_PARTS_H_
