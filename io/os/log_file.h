// Lines of the log as a file has them, and as JSON: with the time, the level, the process and its rank. log.h
// writes through this; the engine chooses form and file once, from the settings. What stands on standard
// error stays as it is unless JSON is asked for.

#ifndef SPILLWAY_IO_OS_LOG_FILE_H_
#define SPILLWAY_IO_OS_LOG_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace spillway::os {

enum class LogFormat : uint8_t { kText, kJson };

struct MarkedLine {
  int64_t unix_nanos = 0;  // since 1970, UTC
  std::string_view
      level;  // error, warning, info, debug; notice: for people at any level; fatal: ends the job
  int pid = 0;
  int rank = -1;  // on the node; -1: not known
  std::string_view text;
};

// "2026-11-28T15:35:50.123Z warning 4711 rank 3: TEXT", or the same as a JSON object; each ends its line.
// Bytes that are no UTF-8 become U+FFFD in JSON. Pure.
std::string MarkedText(const MarkedLine& line, LogFormat format);

// Of all lines from now on. Before any other thread logs.
void SetLogFormat(LogFormat format, int rank);

// From now on lines are appended to that file as well, each by one write(2). A file that is not there is
// made, readable by its owner alone. An error where it cannot be opened, or is a link; then nothing changes.
// Before any other thread logs.
absl::Status OpenLogFile(const std::string& path);

// No line goes to a file any more.
void CloseLogFile();

// For log.h: one line to standard error and to the file. `plain`: as standard error has it, without its end.
// Any thread. What cannot be written to standard error is lost; where the file fails, a line there says so
// once.
void WriteLogLine(std::string_view level, std::string_view text, const std::string& plain);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_LOG_FILE_H_
