// The figures of a report as JSON, for `spillway report --json`: from the same model as the page, so that
// both show the same. docs/report-data.md names the keys, which scripts read. Pure; no call fails: bytes that
// are no UTF-8 are replaced.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_JSON_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_JSON_H_

#include <string>

#include "integration/cli/page/report_model.h"

namespace spillway::integration {

std::string ReportMetricsJson(const ReportModel& model);

// Return the text of a figure and of a cell, as the page shows it; empty: not known.
std::string TextOf(const Figure& figure);
std::string TextOf(const Cell& cell, const TableColumn& column);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_JSON_H_
