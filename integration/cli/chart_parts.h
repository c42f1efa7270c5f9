// Pieces of Vega-Lite that several charts share: axes, colours, reference lines. For report_charts and
// comparison_charts. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_CHART_PARTS_H_
#define SPILLWAY_INTEGRATION_CLI_CHART_PARTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/cli/report_data.h"
#include "integration/cli/report_model.h"

namespace spillway::integration {

using Json = nlohmann::json;

// A number as it is drawn: five figures are finer than a pixel.
double Rounded(double value);

Json Values(Json rows);  // {"values": rows}
Json Quantity(const std::string& field, const std::string& title);
// The run's time in seconds, from 0 to its end.
Json TimeAxis(const std::string& field, double end_s);
// Colours by name, in this order. The page has the legend.
Json Colours(const std::string& field, const std::vector<LegendEntry>& names);
// A horizontal line at `y`, as its entry in the legend has it.
Json Rule(double y, const LegendEntry& entry);

// Its name in a chart, "backward?" of a guessed one; empty where the phase is too short for words.
std::string PhaseLabel(const ReportPhase& phase);
// Of the chart's words: where phases come from, and which part of them is a guess.
std::string PhaseWords(const std::vector<ReportPhase>& phases);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_CHART_PARTS_H_
