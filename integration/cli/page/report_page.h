// A model as one HTML page that needs no other file: style, data and the drawing library are inside it. Its
// policy (Content-Security-Policy) forbids every request. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_PAGE_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_PAGE_H_

#include <string>

#include "integration/cli/page/report_model.h"

namespace spillway::integration {

// `data`: JSON for the page's element of that name, which scripts read. `drawing_library`: the script that
// defines vegaEmbed.
std::string ReportPage(const ReportModel& model, const std::string& data, const std::string& drawing_library);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_PAGE_H_
