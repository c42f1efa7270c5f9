// The contents of a report, section by section: the verdict, figures, tables, charts, and a line for each
// figure that is not known. For `spillway report`. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_SECTIONS_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_SECTIONS_H_

#include "integration/cli/page/report_model.h"
#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_facts.h"
#include "integration/cli/report/what_if.h"

namespace spillway::integration {

// Returns everything that the page and the JSON show. `assumptions`: the command line's additions to the
// file.
ReportModel ModelOf(const ReportData& data, const WhatIf& what_if, const ReportAssumptions& assumptions);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_SECTIONS_H_
