// Likely causes of changes between two runs: sentences, each derived from other changes that the files show.
// A cause that they do not show is not made up. For run_changes. Pure; cannot fail.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_CHANGE_CAUSES_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_CHANGE_CAUSES_H_

#include "integration/cli/report/run_changes.h"

namespace spillway::integration {

// Fills `cause` of every notable change of `changes`, which is complete otherwise.
void FindCauses(RunChanges* changes);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_CHANGE_CAUSES_H_
