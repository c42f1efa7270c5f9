// The charts of a report over a run's time as specifications of Vega-Lite, without size and theme, which the
// page adds. Each chart's data are bins or rows of a few hundred at most, however long the run was. Colors
// are the page's CSS variables. A chart with nothing to show is none, and report_sections gives the reason.
// Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_CHARTS_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_CHARTS_H_

#include <optional>
#include <vector>

#include "integration/cli/page/report_model.h"
#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_facts.h"

namespace spillway::integration {

std::optional<Chart> MemoryChart(const ReportData& data, const ReportFacts& facts);
// Shows the iteration of OneIterationChart, with its phases; none if the samples are too far apart.
std::optional<Chart> IterationMemoryChart(const ReportData& data, const ReportFacts& facts);
std::optional<Chart> LinkChart(const ReportData& data);
std::vector<Chart> DriveCharts(const ReportData& data);
std::optional<Chart> LostTimeChart(const ReportData& data, const ReportFacts& facts);
std::optional<Chart> IterationsChart(const ReportData& data, const ReportFacts& facts);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_CHARTS_H_
