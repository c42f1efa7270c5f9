// One log function: lines "spillway: LEVEL text" on standard error, nothing else, never on the launch path.
// The level is set once by the owner of the options.

#ifndef SPILLWAY_IO_OS_LOG_H_
#define SPILLWAY_IO_OS_LOG_H_

#include <string>

namespace spillway::os {

enum class LogLevel : int { kOff = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4 };

// Default kWarn. Any thread.
void SetLogLevel(LogLevel level);

// One line, in one write(2). At most 20 lines a second for each level below kError are written; the number
// left out is added to the next one. Any thread; takes a lock, so not from a launch whose set is resident.
void Log(LogLevel level, const std::string& text);

// A line the user always sees, whatever the level: "spillway: TEXT".
void Announce(const std::string& text);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_LOG_H_
