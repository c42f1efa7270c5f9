#include "integration/cli/report/report_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace spillway::integration {
namespace {

constexpr long long kNanos = 1'000'000'000;

bool IsNumber(absl::string_view text) {
  for (char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
  }
  return !text.empty();
}

// Takes the digits off the front of `text`. Returns false if it begins with no digit.
bool SkipNumber(absl::string_view* text) {
  size_t digits = 0;
  while (digits < text->size() && std::isdigit(static_cast<unsigned char>((*text)[digits])) != 0) ++digits;
  text->remove_prefix(digits);
  return digits > 0;
}

// Returns whether `path` is `pattern` with numbers for %p and %r, and perhaps .gpuN behind it.
bool Matches(absl::string_view pattern, absl::string_view path) {
  while (!pattern.empty()) {
    if (absl::StartsWith(pattern, "%p") || absl::StartsWith(pattern, "%r")) {
      if (!SkipNumber(&path)) return false;
      pattern.remove_prefix(2);
      continue;
    }
    if (path.empty() || path[0] != pattern[0]) return false;
    pattern.remove_prefix(1);
    path.remove_prefix(1);
  }
  return path.empty() || (absl::StartsWith(path, ".gpu") && IsNumber(path.substr(4)));
}

// Returns the pattern of the files of ranks after the first if neither %p nor %r tells them apart:
// "x.rank%r.json" for "x.json" (OutputFile::Expand); empty if one does.
std::string PatternOfRanks(const std::string& pattern) {
  if (absl::StrContains(pattern, "%p") || absl::StrContains(pattern, "%r")) return "";
  const size_t end = absl::EndsWith(pattern, ".json") ? pattern.size() - 5 : pattern.size();
  return absl::StrCat(pattern.substr(0, end), ".rank%r", pattern.substr(end));
}

void AddWritten(const std::string& pattern, long long since_unix_ns, std::vector<std::string>* files) {
  std::string wild = absl::StrReplaceAll(
      pattern, {{"\\", "\\\\"}, {"*", "\\*"}, {"?", "\\?"}, {"[", "\\["}, {"%p", "*"}, {"%r", "*"}});
  wild += "*";
  glob_t found = {};
  if (::glob(wild.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      struct stat info = {};
      const std::string path = found.gl_pathv[i];
      if (!Matches(pattern, path) || ::stat(path.c_str(), &info) != 0) continue;
      if (info.st_mtim.tv_sec * kNanos + info.st_mtim.tv_nsec >= since_unix_ns) files->push_back(path);
    }
  }
  ::globfree(&found);
}

}  // namespace

bool AsksForPage(const std::string& report) { return absl::EndsWith(report, ".html"); }

std::string DataPathOf(const std::string& page) {
  return absl::StrCat(page.substr(0, page.size() - (AsksForPage(page) ? 5 : 0)), ".json");
}

std::string PageOfDataFile(const std::string& data) {
  const size_t end = data.rfind(".json");
  if (end == std::string::npos) return data + ".html";
  return absl::StrCat(data.substr(0, end), data.substr(end + 5), ".html");
}

std::string PageOfRanks(const std::string& pattern) {
  const std::string ranks = PatternOfRanks(pattern);
  if (ranks.empty()) return PageOfDataFile(absl::StrReplaceAll(pattern, {{"%p", "all"}, {"%r", "ranks"}}));
  return PageOfDataFile(absl::StrReplaceAll(ranks, {{".rank%r", ".ranks"}}));
}

std::string DataPathOfRank(const std::string& pattern, int rank) {
  const std::string ranks = PatternOfRanks(pattern);
  return absl::StrReplaceAll(ranks.empty() || rank == 0 ? pattern : ranks, {{"%r", absl::StrCat(rank)}});
}

std::vector<std::string> WrittenDataFiles(const std::string& pattern, Whose whose, long long since_unix_ns) {
  std::vector<std::string> files;
  AddWritten(pattern, since_unix_ns, &files);
  if (const std::string ranks = PatternOfRanks(pattern); whose == Whose::kEveryRanks && !ranks.empty())
    AddWritten(ranks, since_unix_ns, &files);
  std::ranges::sort(files);
  return files;
}

}  // namespace spillway::integration
