#include "integration/cli/page/page_file.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "integration/cli/common/trace_files.h"
#include "integration/cli/page/report_page.h"
#include "integration/report/atomic_file.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

std::string LibraryPath(const std::string& directory) { return absl::StrCat(directory, "/vega.js"); }

}  // namespace

absl::Status FindDrawingLibrary(const std::string& library_directory) {
  const std::string path = LibraryPath(library_directory);
  if (::access(path.c_str(), R_OK) == 0) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(path,
                   " is missing, so no page can be drawn. It comes from PyPI at the build: "
                   "integration/packaging/fetch_vega.py fetches it; figures as --json need no page"));
}

absl::Status WritePage(const ReportModel& model, const std::string& data,
                       const std::string& library_directory, const std::string& path) {
  if (absl::Status status = FindDrawingLibrary(library_directory); !status.ok()) return status;
  const auto library = ReadFile(LibraryPath(library_directory));
  if (!library.ok()) return library.status();
  return ReplaceFile(path, ReportPage(model, data, *library));
}

absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return WriteFile(path, text);
  const fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : fs::path(path);
  const absl::Status written = WriteFileAtomically(error ? path : target.string(), text, Readers::kOwner);
  if (written.ok()) return written;
  return absl::UnknownError(absl::StrCat(path, ": cannot be written: ", written.message()));
}

}  // namespace spillway::integration
