// Pages as files: the drawing library that each holds, and how a page is written. For the subcommands that make
// pages. Reads and writes files; an error names the file.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_PAGE_FILE_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_PAGE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "integration/cli/page/report_model.h"

namespace spillway::integration {

// NotFound, with what to do, where the drawing library is not in `library_directory`.
absl::Status FindDrawingLibrary(const std::string& library_directory);

// Writes the page of `model` to `path`. `data`: as ReportPage takes it.
absl::Status WritePage(const ReportModel& model, const std::string& data,
                       const std::string& library_directory, const std::string& path);

// Writes beside it first, so that a full disk leaves what was there before. What is no file, such as a pipe, is
// written to; where a link leads the file is replaced.
absl::Status ReplaceFile(const std::string& path, const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_PAGE_FILE_H_
