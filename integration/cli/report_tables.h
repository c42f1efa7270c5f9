// The tables of a report. For report_sections. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_TABLES_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_TABLES_H_

#include "integration/cli/report_data.h"
#include "integration/cli/report_facts.h"
#include "integration/cli/report_model.h"
#include "integration/cli/what_if.h"

namespace spillway::integration {

Table CauseTable(const ReportFacts& facts);
Table WaitingKernelsTable(const ReportData& data);  // the ten that waited longest
Table BlocksTable(const ReportData& data);
Table KernelsTable(const ReportData& data);
Table WhatIfTable(const WhatIf& what_if, const WhatIfSweep& sweep);
Table JobTable(const ReportData& data);
Table SettingsTable(const ReportData& data);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_TABLES_H_
