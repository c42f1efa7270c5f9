#include "integration/engine/output_file.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "integration/engine/report.h"
#include "io/os/log.h"

namespace spillway::integration {

OutputFile::OutputFile(std::string setting, std::string path)
    : setting_(std::move(setting)), path_(std::move(path)) {}

void OutputFile::Replace(const std::string& text) {
  if (!wanted()) return;
  const absl::Status status = WriteFileAtomically(path_, text);
  if (status.ok() || failed_) return;
  failed_ = true;  // reported once, not every 10 s
  os::Log(os::LogLevel::kWarn, absl::StrCat("cannot write ", setting_, ": ", std::string(status.message())));
}

std::string OutputFile::Expand(const std::string& pattern, int local_rank) {
  return absl::StrReplaceAll(pattern, {{"%p", absl::StrCat(::getpid())}, {"%r", absl::StrCat(local_rank)}});
}

std::string OutputFile::OfDevice(const std::string& path, int device, bool first) {
  return first ? path : absl::StrCat(path, ".gpu", device);
}

}  // namespace spillway::integration
