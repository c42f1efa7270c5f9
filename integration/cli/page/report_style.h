// The parts that every report's page has: its style, and the script that draws the charts. For report_page,
// which puts both into the page; the page requests no file. Constants, text only; nothing here can fail.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_STYLE_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_STYLE_H_

namespace spillway::integration {

extern const char kReportStyle[];   // of a <style>
extern const char kReportScript[];  // of a <script>, after the drawing library

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_STYLE_H_
