// The form of log lines in a file, and as JSON: with the time, the level, the process and its rank. log.h
// writes through this unit; the engine chooses form and file once, from the settings. The lines on standard
// error keep their form unless JSON is chosen.

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

// Returns "2026-11-28T15:35:50.123Z warning 4711 rank 3: TEXT", or the same as a JSON object, with the line's
// end. Bytes that are not UTF-8 become U+FFFD in JSON. Pure.
std::string MarkedText(const MarkedLine& line, LogFormat format);

// Sets the form of all lines from now on. Called before any other thread logs.
void SetLogFormat(LogFormat format, int rank);

// Appends all lines from now on to that file as well, each by one write(2). A file that does not exist is
// created, readable by its owner alone. Returns an error, and changes nothing, when the file cannot be opened
// or is a link. Called before any other thread logs.
absl::Status OpenLogFile(const std::string& path);

// Ends writing to the file.
void CloseLogFile();

// For log.h: writes one line to standard error and to the file. `plain` is the line for standard error,
// without its end. Any thread. A line that cannot be written to standard error is lost. When the file fails,
// a line on standard error reports it once.
void WriteLogLine(std::string_view level, std::string_view text, const std::string& plain);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_LOG_FILE_H_
