// The log: lines "spillway: LEVEL text" on standard error. Every module logs by it, but never on the launch
// path. The engine sets the level once, from the settings. Any thread; a line that cannot be written is lost.

#ifndef SPILLWAY_IO_OS_LOG_H_
#define SPILLWAY_IO_OS_LOG_H_

#include <string>
#include <vector>

namespace spillway::os {

enum class LogLevel : int { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

// The default is kWarn. Any thread.
void SetLogLevel(LogLevel level);

// Writes one line in one write(2), when `level` is enabled. At most 20 lines a second are written of all
// levels but kError together; the next line adds the number of those left out. Takes a lock, so it is not for
// a launch whose blocks are resident.
void Log(LogLevel level, const std::string& text);

// Writes a line that the user sees at any level but kOff: "spillway: TEXT".
void ReportLine(const std::string& text);

// Writes the error that ends the job, at every level.
void ReportFatal(const std::string& text);

// The last lines that were written, at most 20, the oldest first, without their line ends. Any thread.
std::vector<std::string> LastLines();

// Sets a text that every line has after "spillway: " from now on, to show which of several processes writes.
// Called once, before any other thread logs.
void SetLogPlace(const std::string& place);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_LOG_H_
