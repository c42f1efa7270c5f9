// The page of two runs side by side: the changes, their sizes and likely causes. For `spillway report A B`.
// Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_CHANGES_PAGE_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_CHANGES_PAGE_H_

#include <string>

#include "integration/cli/page/report_model.h"
#include "integration/cli/report/run_changes.h"

namespace spillway::integration {

// The name of a run and, if it has several ranks, of the one that was taken.
struct RunLabel {
  std::string name;  // as ShortNames returns it
  std::string rank;  // "rank 2, the slowest of 4"; empty: the run has one
};

ReportModel ChangesModel(const ComparedRun& before, const ComparedRun& after, const RunChanges& changes,
                         const RunLabel& label_before, const RunLabel& label_after);

// Returns names of two paths, as short as still tells them apart: "before" and "after" of "x/before.json" and
// "x/after.json".
std::pair<std::string, std::string> ShortNames(const std::string& before, const std::string& after);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_CHANGES_PAGE_H_
