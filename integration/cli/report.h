// `spillway report`: makes the page of a run, or prints its figures, from the file that SPILLWAY_REPORT names
// (docs/report.md). Reads and writes files; the simulator runs in this thread. What fails is a line that
// names the file, and an exit status.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "integration/cli/report_facts.h"

namespace spillway::integration {

struct ReportOptions {
  std::string file;
  std::string output;             // empty: `file` with .html in place of .json, unless `json`
  std::string chrome_trace;       // file to write; empty: none
  std::string library_directory;  // where the drawing library lies
  unsigned threads = 0;           // for the simulations; 0: one for each processor
  bool json = false;
  bool what_if = true;
  ReportAssumptions assumptions;
};

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddReport(CLI::App* app, ReportOptions* options);

// Returns the exit status: 0; 2 for wrong use, a file that is no whole data of a run, or a page that cannot
// be written.
int Report(const ReportOptions& options);

// The page alone; for `spillway run`. An error names the file.
absl::Status WriteReportPage(const ReportOptions& options);

// "x.html" for "x.json"; .html is appended to another name.
std::string PageOf(const std::string& file);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_H_
