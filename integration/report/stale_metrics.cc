#include "integration/report/stale_metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "integration/report/output_file.h"

namespace spillway::integration {
namespace {

constexpr std::string_view kBeginning = "# HELP spillway_build_info ";
constexpr std::string_view kPidLabel = ",pid=\"";
constexpr int kMaxScans = 10'000;  // at names of one folder

size_t DigitsAt(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  return digits;
}

// Whether `name` is `pattern` with a number for each %p and %r.
bool Matches(std::string_view name, std::string_view pattern) {
  while (!pattern.empty()) {
    if (pattern.starts_with("%p") || pattern.starts_with("%r")) {
      const size_t digits = DigitsAt(name);
      if (digits == 0) return false;
      name.remove_prefix(digits);
      pattern.remove_prefix(2);
    } else {
      if (name.empty() || name.front() != pattern.front()) return false;
      name.remove_prefix(1);
      pattern.remove_prefix(1);
    }
  }
  return name.empty();
}

// Returns the process that a file names, if it begins as our files do.
std::optional<int> WriterOf(int file) {
  std::array<char, 4096> text = {};
  const ssize_t bytes = ::pread(file, text.data(), text.size(), 0);
  std::string_view rest(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const size_t label = rest.find(kPidLabel);
  if (!rest.starts_with(kBeginning) || label == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(label + kPidLabel.size());
  int pid = 0;
  const std::string_view digits = rest.substr(0, DigitsAt(rest));
  if (!absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &pid) || pid <= 0)
    return std::nullopt;
  return pid;
}

bool IsStale(int folder, const char* name, std::time_t now, const std::function<bool(int pid)>& is_there) {
  const int file = ::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return false;
  struct stat info = {};
  bool stale = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
               now - info.st_mtime > kStaleSeconds;
  if (stale) {
    const std::optional<int> writer = WriterOf(file);
    stale = writer && (now - info.st_mtime > kForgottenSeconds || !is_there(*writer));
  }
  ::close(file);
  return stale;
}

}  // namespace

int RemoveStaleMetrics(const std::string& pattern, std::time_t now,
                       const std::function<bool(int pid)>& is_there) {
  const std::filesystem::path path = OutputFile::WithHost(pattern);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  if (folder.find("%p") != std::string::npos || folder.find("%r") != std::string::npos) return 0;
  const std::string name = path.filename().string();
  // The names that OutputFile::Expand makes for further ranks.
  const std::string of_rank = path.stem().string() + ".rank%r" + path.extension().string();
  const bool names_one = name.find("%p") != std::string::npos || name.find("%r") != std::string::npos;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(folder.c_str()), ::closedir);
  if (opened == nullptr) return 0;
  int removed = 0;
  for (int i = 0; i < kMaxScans; ++i) {
    const dirent* const entry = ::readdir(opened.get());
    if (entry == nullptr) break;
    if (!Matches(entry->d_name, names_one ? name : of_rank)) continue;
    const int descriptor = ::dirfd(opened.get());
    if (IsStale(descriptor, entry->d_name, now, is_there) && ::unlinkat(descriptor, entry->d_name, 0) == 0)
      ++removed;
  }
  return removed;
}

bool ProcessIsThere(int pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

}  // namespace spillway::integration
