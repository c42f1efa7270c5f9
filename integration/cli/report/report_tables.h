// The tables of a report, for report_sections. A table has no rows if the file lacks what they need; a cell
// that is not known is empty. Long names of kernels lose their middle. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_TABLES_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_TABLES_H_

#include "integration/cli/page/report_model.h"
#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_facts.h"
#include "integration/cli/report/what_if.h"

namespace spillway::integration {

Table CauseTable(const ReportFacts& facts);
Table WaitingKernelsTable(const ReportData& data);  // the ten that waited longest
Table PausesTable(const ReportData& data);          // the ten longest, in the order of the file
// The first ten blocks and kernels, in the order of the file.
Table BlocksTable(const ReportData& data);
Table KernelsTable(const ReportData& data);
Table ReachingKernelsTable(const ReportData& data);  // whose launches did not fit the GPU
Table DirectoriesTable(const ReportData& data);      // the bytes moved, and the way
Table TroubleTable(const ReportData& data);          // directories whose drive failed in any way
Table WhatIfTable(const WhatIf& what_if, const WhatIfSweep& sweep);
Table JobTable(const ReportData& data);
Table SettingsTable(const ReportData& data);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_TABLES_H_
