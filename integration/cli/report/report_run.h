// `spillway run --report FILE.html`: runs the command as a child, hands signals on to it, and makes its pages
// after it has ended, whatever its exit status, which becomes this process's own. It forks, so it runs before
// there are threads; it simulates on several afterwards. A command that cannot be run is exit status 127.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_RUN_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_RUN_H_

#include <string>
#include <vector>

namespace spillway::integration {

// `command` ends with a null pointer. The variable of the data file has been set. Returns the exit status to
// pass on; if a signal ended the command, the same signal ends this process.
int RunAndReport(const std::vector<char*>& command, const std::string& page,
                 const std::string& library_directory);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_RUN_H_
