// The page of all ranks of a job: a row for each, where the time of each goes, and then all that a page of
// one run says, of the slowest. For `spillway report`. Pure; nothing fails.

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
