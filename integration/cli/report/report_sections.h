// What a report says, section by section: the verdict, figures, tables, charts, and a line for whatever is not known. For
// `spillway report`. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_SECTIONS_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_SECTIONS_H_

#include "integration/cli/page/report_model.h"
#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_facts.h"
#include "integration/cli/report/what_if.h"

namespace spillway::integration {

// The page and the JSON show this and nothing else. `assumptions`: what the command line gave beside the
// file.
ReportModel ModelOf(const ReportData& data, const WhatIf& what_if, const ReportAssumptions& assumptions);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_SECTIONS_H_
