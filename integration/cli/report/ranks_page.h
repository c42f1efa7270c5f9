// The page of all ranks of a job: a row for each with the parts of its time, and then the page of one run,
// for the slowest. For `spillway report`. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_RANKS_PAGE_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_RANKS_PAGE_H_

#include "integration/cli/page/report_model.h"
#include "integration/cli/report/job_ranks.h"
#include "integration/cli/report/run_files.h"

namespace spillway::integration {

// `slowest`: the model of the file of ranks.slowest, as ModelOf makes it.
ReportModel RanksModel(const ReportedRun& run, const JobRanks& ranks, ReportModel slowest);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_RANKS_PAGE_H_
