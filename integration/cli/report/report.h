// `spillway report`: makes the page of a run, of all ranks of a job, or of two runs side by side, or prints
// its figures, from the files that SPILLWAY_REPORT names (docs/report.md). Reads and writes files; simulates
// on several threads of its own. A failure costs a line that names the file, and an exit status.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "integration/cli/report/report_facts.h"
#include "integration/cli/report/run_files.h"

namespace spillway::integration {

struct ReportOptions {
  std::vector<std::string> files;  // files and folders: of one run, of one job's ranks, or of two runs
  FilesAre files_are = FilesAre::kByThemselves;
  std::string output;             // empty: as DefaultPage returns it, unless `json` or `text`
  std::string chrome_trace;       // file to write; empty: none
  std::string library_directory;  // folder of the drawing library
  unsigned threads = 0;           // for the simulations; 0: one for each processor
  bool json = false;
  bool text = false;
  bool what_if = true;
  ReportAssumptions assumptions;
};

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddReport(CLI::App* app, ReportOptions* options);

// Returns the exit status: 0; 2 for wrong use, a file that is no complete data of a run, or a page that
// cannot be written.
int Report(const ReportOptions& options);

// Writes only the page; for `spillway run`. An error names the file.
absl::Status WriteReportPage(const ReportOptions& options);

// Returns the path of the page without --output: "x.html" for "x.json", and with .html appended for another
// name; for several ranks "ranks.html" in their folder; for two runs "a-to-b.html" beside the first.
std::string DefaultPage(const std::vector<ReportedRun>& runs);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_H_
