#include "io/os/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "io/os/clock.h"
#include "io/os/errno.h"

namespace spillway::os {
namespace {

// These three are stored before other threads log, and every line reads them.
std::atomic<int> log_file{-1};
std::atomic<bool> as_json{false};
std::atomic<int> log_rank{-1};
std::atomic<bool> file_failed{false};  // exchanged by lines that fail: the first one reports it

// Number of bytes of `text` that are one character of UTF-8; 0 when the first bytes are none.
size_t CharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  const auto second = static_cast<unsigned char>(bytes > 1 ? text[1] : 0);
  // Overlong forms, halves of UTF-16's pairs, and values beyond Unicode.
  const bool outside = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
                       (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90);
  return outside ? 0 : bytes;
}

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const char c = text[0];
    if (bytes == 0) {
      json += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      json += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(c));
      json += code;
    } else {
      json += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return json + "\"";
}

std::string TimeText(int64_t unix_nanos) {
  const time_t seconds = unix_nanos / 1'000'000'000;
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char text[64];
  std::snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(unix_nanos / 1'000'000 % 1000));
  return text;
}

// Returns 0 or an errno value. Writes in one call, so that lines of several processes do not mix.
int WriteAt(int descriptor, const std::string& line) {
  const ssize_t written = ::write(descriptor, line.data(), line.size());
  if (written < 0) return errno;
  return static_cast<size_t>(written) == line.size() ? 0 : ENOSPC;
}

}  // namespace

std::string MarkedText(const MarkedLine& line, LogFormat format) {
  const std::string time = TimeText(line.unix_nanos), pid = std::to_string(line.pid),
                    rank = std::to_string(line.rank), level(line.level);
  if (format == LogFormat::kText) {
    const std::string place = line.rank < 0 ? pid : pid + " rank " + rank;
    return time + " " + level + " " + place + ": " + std::string(line.text) + "\n";
  }
  return R"({"time":")" + time + R"(","level":")" + level + R"(","pid":)" + pid +
         (line.rank < 0 ? "" : R"(,"rank":)" + rank) + R"(,"text":)" + JsonString(line.text) + "}\n";
}

void SetLogFormat(LogFormat format, int rank) {
  as_json.store(format == LogFormat::kJson);
  log_rank.store(rank);
}

namespace {

// In a folder where others write, one of them may have made the file in order to read the log. A pipe is
// refused because the job would end by SIGPIPE if its reader left.
absl::Status CheckOwnLog(int descriptor, const std::string& path) {
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) return StatusFromErrno(errno, path);
  if (S_ISFIFO(info.st_mode)) return absl::InvalidArgumentError(path + ": it is a pipe");
  if (S_ISREG(info.st_mode) && info.st_uid != ::geteuid() && info.st_uid != 0)
    return absl::PermissionDeniedError(path + ": it belongs to another user");
  return absl::OkStatus();
}

}  // namespace

absl::Status OpenLogFile(const std::string& path) {
  // Opens without blocking: a pipe that nobody reads must not stop the job.
  const int descriptor = ::open(
      path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
  if (descriptor < 0) return StatusFromErrno(errno, path);
  if (const absl::Status status = CheckOwnLog(descriptor, path); !status.ok()) {
    ::close(descriptor);
    return status;
  }
  CloseLogFile();
  file_failed.store(false);
  log_file.store(descriptor);
  return absl::OkStatus();
}

void CloseLogFile() {
  const int before = log_file.exchange(-1);
  if (before >= 0) ::close(before);
}

void WriteLogLine(std::string_view level, std::string_view text, const std::string& plain) {
  const bool json = as_json.load();
  const int file = log_file.load();
  std::string marked;
  if (json || file >= 0)
    marked = MarkedText({UnixNanos(), level, ::getpid(), log_rank.load(), text},
                        json ? LogFormat::kJson : LogFormat::kText);
  (void)WriteAt(STDERR_FILENO, json ? marked : plain + "\n");
  const int error = file >= 0 ? WriteAt(file, marked) : 0;
  if (error != 0 && !file_failed.exchange(true))
    (void)WriteAt(STDERR_FILENO, "spillway: warning cannot write SPILLWAY_LOG_FILE: " +
                                     std::string(StatusFromErrno(error, "write").message()) + "\n");
}

}  // namespace spillway::os
