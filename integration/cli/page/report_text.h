// A report as text for a terminal or a mail: from the same model as the page and the JSON, without charts.
// For `spillway report --text`. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_TEXT_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_TEXT_H_

#include <string>

#include "integration/cli/page/report_model.h"

namespace spillway::integration {

// Returns the sentences, then each section with a line for each figure and its tables in columns. Control
// characters, which a name in a file may contain, are replaced, since a terminal would obey them.
std::string ReportText(const ReportModel& model);

// Returns how many columns of a terminal `text` takes if each character takes one.
size_t ColumnsOf(const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_TEXT_H_
