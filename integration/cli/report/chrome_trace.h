// Chrome trace of a run: the moves, stalls and iterations of SPILLWAY_REPORT's data (docs/report.md) as the
// trace events that Perfetto and chrome://tracing read, with counters of memory and transfers. `spillway
// report --chrome-trace` calls it. Pure: text in, text out. Data of another form is an error that names the
// place.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_CHROME_TRACE_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_CHROME_TRACE_H_

#include <string>

#include "absl/status/statusor.h"

namespace spillway::integration {

// `data`: the text of one data file. Returns kInvalidArgument, with what is wrong, for any other text.
absl::StatusOr<std::string> ChromeTrace(const std::string& data);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_CHROME_TRACE_H_
