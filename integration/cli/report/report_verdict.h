// The verdict of a report: how the run went, in a few sentences, for readers of nothing else. For
// report_sections. A sentence whose figures are not known is left out. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_VERDICT_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_VERDICT_H_

#include <string>
#include <vector>

#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_facts.h"

namespace spillway::integration {

// The first sentence is the headline.
std::vector<std::string> VerdictOf(const ReportData& data, const ReportFacts& facts);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_VERDICT_H_
