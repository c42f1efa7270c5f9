// What the exit status of the program says, beside 0, and the words that go with it. All subcommands; one thread;
// nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_EXIT_STATUS_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace spillway::integration {

inline constexpr int kWrongUse = 2;     // of the command line, or of a file that it names
inline constexpr int kCannotRun = 127;  // the program that was to be run cannot be, as a shell says it

// Writes the status's message to standard error, as the program's; returns kWrongUse.
int Refuse(const absl::Status& status);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_EXIT_STATUS_H_
