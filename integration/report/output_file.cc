#include "integration/report/output_file.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

// "a/run.rank1.json" for "a/run.json"; "a/run.rank1" for "a/run".
std::string OfRank(const std::string& path, int rank) {
  const std::filesystem::path name(path);
  std::filesystem::path file = name.stem();
  file += absl::StrCat(".rank", rank, name.extension().string());
  return (name.parent_path() / file).string();
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

OutputFile::OutputFile(std::string setting, std::string path, Readers readers)
    : setting_(std::move(setting)), path_(std::move(path)), readers_(readers) {}

void OutputFile::Replace(const std::string& text) {
  if (!wanted()) return;
  const absl::Status status = WriteFileAtomically(path_, text, readers_);
  if (status.ok() || failed_) return;
  failed_ = true;  // reported once, not every 10 s
  os::Log(os::LogLevel::kWarn, absl::StrCat("cannot write ", setting_, ": ", std::string(status.message())));
}

std::string OutputFile::Expand(const std::string& pattern, int local_rank) {
  const bool separates_ranks = absl::StrContains(pattern, "%p") || absl::StrContains(pattern, "%r");
  if (local_rank > 0 && !separates_ranks && !pattern.empty()) return OfRank(WithHost(pattern), local_rank);
  return absl::StrReplaceAll(
      pattern, {{"%p", absl::StrCat(::getpid())}, {"%r", absl::StrCat(local_rank)}, {"%h", HostName()}});
}

std::string OutputFile::WithHost(const std::string& pattern) {
  return absl::StrReplaceAll(pattern, {{"%h", HostName()}});
}

std::string OutputFile::OfDevice(const std::string& path, int device, bool first) {
  return first ? path : absl::StrCat(path, ".gpu", device);
}

}  // namespace spillway::integration
