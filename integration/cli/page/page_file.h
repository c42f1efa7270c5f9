// Pages as files: the drawing library that is part of each, and the writing of a page. For the subcommands
// that make pages, on the program's main thread. Reads and writes files; an error names the file.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_PAGE_FILE_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_PAGE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "integration/cli/page/report_model.h"

namespace spillway::integration {

// Returns NotFound, with what to do, if the drawing library is not in `library_directory`.
absl::Status FindDrawingLibrary(const std::string& library_directory);

// Writes the page of `model` to `path`. `data`: as ReportPage takes it.
absl::Status WritePage(const ReportModel& model, const std::string& data,
                       const std::string& library_directory, const std::string& path);

// Writes to a new file first, so that a full disk leaves what was there before. A path that is no regular
// file, such as a pipe, is written to; the file behind a link is replaced.
absl::Status ReplaceFile(const std::string& path, const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_PAGE_FILE_H_
