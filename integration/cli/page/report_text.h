// A report as text for a terminal or a mail: the same model as the page's and the JSON's, without its charts.
// For `spillway report --text`. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_TEXT_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_TEXT_H_

#include <string>

#include "integration/cli/page/report_model.h"

namespace spillway::integration {

// Sentences first, then each section with its figures a line each and its tables in columns. Control
// characters, which a name in a file may hold, are replaced: a terminal would obey them.
std::string ReportText(const ReportModel& model);

// How many columns of a terminal `text` takes, where each character takes one.
size_t ColumnsOf(const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_TEXT_H_
