// The charts of a report that are not over the run's time: one iteration, sizes of moves, the bound, other
// machines. Like those of report_charts.h they are specifications of Vega-Lite, whose data are a few hundred
// rows at most. A chart is none if the file lacks its data; report_sections then has a line about it. Pure;
// no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_COMPARISON_CHARTS_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_COMPARISON_CHARTS_H_

#include <optional>
#include <string>

#include "integration/cli/page/report_model.h"
#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_facts.h"
#include "integration/cli/report/what_if.h"

namespace spillway::integration {

// Shows the iteration that IterationToShow picks (report_bins.h): when each kind of transfer was in progress,
// and when the GPU waited.
std::optional<Chart> OneIterationChart(const ReportData& data, const ReportFacts& facts);
std::optional<Chart> MoveSizesChart(const ReportData& data);
std::optional<Chart> BoundChart(const ReportFacts& facts, const WhatIf& what_if, const ReportData& data);
std::optional<Chart> WhatIfChart(const WhatIf& what_if, const WhatIfSweep& sweep, const ReportFacts& facts);

// Returns "GPU → host" for "gpu_to_host"; the name itself if it has another form.
std::string MoveName(const std::string& kind);
const char* NameOf(WhatIfAxis axis);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_COMPARISON_CHARTS_H_
